// Set and used under the same condition.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float scale; int rounds; bool wide = i & 1;
  if (wide) { scale = 2; rounds = 3; }
  float v = x[i];
  if (wide) for (int n = 0; n < rounds; ++n) v *= scale;
  out[i] = v;
}
