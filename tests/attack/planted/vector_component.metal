// expect: out_of_bounds error line 8
// launch: k float32[8]=random float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float4 v(x[i], 1, 2, 3);
  out[i] = v[i];
}
