// A fused step: whole vectors first, the tail one float a thread; but the vectors are rounded up,
// so that the tail is updated twice (known-bad row 7). The buffer is padded to whole vectors.
// expect: race error line 16 other 19 buffer parameter
// allow: race error line 19 other 19 buffer parameter
// launch: step float32[12]=random float32[12]=random 10 threads=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void step(device float* parameter,
                 device const float* gradient,
                 constant uint& length,
                 uint in_grid [[thread_position_in_grid]]) {
  const uint quads = (length + 3) / 4;
  if (in_grid < quads) {
    device float4* quad = (device float4*)parameter + in_grid;
    *quad -= 0.1f * ((device const float4*)gradient)[in_grid];
  } else {
    const uint i = length / 4 * 4 + in_grid - quads;
    if (i < length) parameter[i] -= 0.1f * gradient[i];
  }
}
