// expect: uninitialised error line 11
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float3 all[32];
  all[i].x = x[i];
  all[i].y = 2;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float3 v = all[31 - i]; out[i] = v.x + v.y + v.z;
}
