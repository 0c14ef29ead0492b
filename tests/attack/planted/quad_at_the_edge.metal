// expect: collective_divergence warning line 7
// launch: k float32[34]=random float32[34]=zeros threads=34 group_size=34 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  out[i] = quad_max(x[i]);
}
