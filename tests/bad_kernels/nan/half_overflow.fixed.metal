// half_overflow, corrected: squares are taken in float.
// expect: nothing
// launch: squares float16[4]=1,2,300,4 float32[4]=zeros threads=4 nan
#include <metal_stdlib>
using namespace metal;

kernel void squares(device const half* x,
                    device float* y,
                    uint in_grid [[thread_position_in_grid]]) {
  const float value = x[in_grid];
  y[in_grid] = float(value * value);
}
