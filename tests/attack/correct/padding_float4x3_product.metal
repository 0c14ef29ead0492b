// Columns of three, four of them; and the transpose.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float4x3 a(float3(x[i]), float3(1), float3(2), float3(3));
  float3x4 b = transpose(a);
  float3x3 c = a * b;
  out[i] = determinant(c) + (a * float4(1)).y;
}
