// expect: nothing
// launch: k float32[64]=random float32[64]=zeros threads=64 group_size=64 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]], uint q [[thread_index_in_quadgroup]]) {
  if (i / 4 % 2 == 0) { float m = quad_max(x[i]); if (q == 0) out[i] = m; }
  else out[i] = quad_shuffle_down(x[i], 1);
}
