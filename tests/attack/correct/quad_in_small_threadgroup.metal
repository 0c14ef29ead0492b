// 36 threads: the last simdgroup is one quad.
// expect: nothing
// launch: k float32[36]=random float32[36]=zeros threads=36 group_size=36
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  out[i] = quad_sum(x[i]) + (quad_all(x[i] > 0) ? 1 : 0);
}
