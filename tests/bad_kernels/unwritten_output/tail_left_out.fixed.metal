// tail_left_out, corrected: the last thread takes the tail along.
// expect: nothing
// launch: negate float32[10]=random float32[10]=zeros 10 threads=2
#include <metal_stdlib>
using namespace metal;

kernel void negate(device const float* x,
                   device float* y,
                   constant uint& length,
                   uint in_grid [[thread_position_in_grid]]) {
  ((device float4*)y)[in_grid] = -((device const float4*)x)[in_grid];
  if (4 * in_grid + 8 > length) {
    for (uint i = 4 * in_grid + 4; i < length; ++i) y[i] = -x[i];
  }
}
