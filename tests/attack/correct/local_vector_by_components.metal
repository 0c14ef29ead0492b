// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float4 v; half3 h; uint2 u;
  for (int n = 0; n < 4; ++n) v[n] = x[i] + n;
  h.x = 1; h.yz = half2(2, 3);
  u.x = i; u.y = 2;
  out[i] = v.x + v.w + h.x + h.z + u.x * u.y;
}
