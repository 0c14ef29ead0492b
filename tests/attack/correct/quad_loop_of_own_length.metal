// Each quad goes round as often as its number says.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float v = x[i];
  for (uint n = 0; n < i / 4; ++n) v = quad_shuffle_xor(v, 1) + 1;
  out[i] = v;
}
