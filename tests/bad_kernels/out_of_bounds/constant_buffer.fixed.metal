// constant_buffer, corrected: the kernel is told how many coefficients there are.
// expect: nothing
// launch: polynomial float32[3]=random float32[8]=random float32[8]=zeros 3 threads=8
#include <metal_stdlib>
using namespace metal;

kernel void polynomial(constant float* coefficients,
                       device const float* x,
                       device float* y,
                       constant uint& count,
                       uint in_grid [[thread_position_in_grid]]) {
  float value = 0.0f;
  for (int i = int(count) - 1; i >= 0; --i) value = value * x[in_grid] + coefficients[i];
  y[in_grid] = value;
}
