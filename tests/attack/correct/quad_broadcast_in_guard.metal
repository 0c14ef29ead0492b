// Rows of four; the last rows have no work.
// expect: nothing
// launch: k float32[20]=random float32[20]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  if (i >= 20) return;
  out[i] = quad_broadcast(x[i], 0) + quad_shuffle_xor(x[i], 1);
}
