// Components of a shared float3, written one by one and read as a vector.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float3 places[32];
  places[i].x = x[i]; places[i].y = 1; places[i].z = 2;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float3 v = places[(i + 5) % 32];
  out[i] = v.x + v.y + v.z;
}
