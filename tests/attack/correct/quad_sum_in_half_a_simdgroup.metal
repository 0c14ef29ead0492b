// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  if (i < 16) out[i] = quad_sum(x[i]);
}
