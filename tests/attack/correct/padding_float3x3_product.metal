// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float3x3 a(x[i]), b(float3(1, 2, 3), float3(4, 5, 6), float3(x[i], 8, 9));
  float3x3 c = a * b;
  float3 v = c * float3(1, 2, x[i]);
  out[i] = v.x + c[1][2];
}
