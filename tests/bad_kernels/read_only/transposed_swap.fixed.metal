// transposed_swap, corrected: the result goes to the output.
// expect: nothing
// launch: update float32[16]=random float32[16]=random float32[16]=zeros threads=16 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void update(device const float* x,
                   device const float* weights,
                   device float* y,
                   uint in_grid [[thread_position_in_grid]]) {
  device float4* result = (device float4*)y;
  if (in_grid < 4) result[in_grid] = ((device const float4*)x)[in_grid] * 3.0f;
}
