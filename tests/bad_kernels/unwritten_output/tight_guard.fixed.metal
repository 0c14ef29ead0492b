// tight_guard, corrected: less than the length, not less than the last index.
// expect: nothing
// launch: square float32[64]=random float32[64]=zeros 64 threads=64 outputs=1
#include <metal_stdlib>
using namespace metal;

kernel void square(device const float* x,
                   device float* y,
                   constant uint& length,
                   uint in_grid [[thread_position_in_grid]]) {
  if (in_grid < length) y[in_grid] = x[in_grid] * x[in_grid];
}
