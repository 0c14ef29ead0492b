// expect: out_of_bounds error line 12
// launch: k float32[8]=random float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  device const float* found = nullptr;
  for (uint n = 0; n < 8; ++n)
    if (x[n] > 1000) found = x + n;
  float bias = i;
  out[i] = bias;
  out[i] += found[0];
}
