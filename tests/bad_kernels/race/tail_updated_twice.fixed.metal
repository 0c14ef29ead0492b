// tail_updated_twice, corrected: only full vectors are updated as vectors.
// expect: nothing
// launch: step float32[12]=random float32[12]=random 10 threads=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void step(device float* parameter,
                 device const float* gradient,
                 constant uint& length,
                 uint in_grid [[thread_position_in_grid]]) {
  const uint quads = length / 4;
  if (in_grid < quads) {
    device float4* quad = (device float4*)parameter + in_grid;
    *quad -= 0.1f * ((device const float4*)gradient)[in_grid];
  } else {
    const uint i = length / 4 * 4 + in_grid - quads;
    if (i < length) parameter[i] -= 0.1f * gradient[i];
  }
}
