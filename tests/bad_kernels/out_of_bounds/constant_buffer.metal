// A polynomial of degree three whose caller passed three coefficients in constant memory.
// expect: out_of_bounds error line 13 buffer coefficients index 3
// launch: polynomial float32[3]=random float32[8]=random float32[8]=zeros 3 threads=8
#include <metal_stdlib>
using namespace metal;

kernel void polynomial(constant float* coefficients,
                       device const float* x,
                       device float* y,
                       constant uint& count,
                       uint in_grid [[thread_position_in_grid]]) {
  float value = 0.0f;
  for (int i = 3; i >= 0; --i) value = value * x[in_grid] + coefficients[i];
  y[in_grid] = value;
}
