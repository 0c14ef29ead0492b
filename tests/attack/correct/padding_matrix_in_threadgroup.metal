// 3x3 matrices shared by a threadgroup.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float3x3 turns[32];
  turns[i] = float3x3(x[i]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float3x3 both = turns[i] * turns[(i + 1) % 32];
  out[i] = both[0][0];
}
