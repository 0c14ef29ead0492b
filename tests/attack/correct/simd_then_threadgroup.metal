// Both kinds of barrier in turn.
// expect: nothing
// launch: k float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], uint s [[simdgroup_index_in_threadgroup]]) {
  threadgroup float t[64]; threadgroup float sums[2];
  t[i] = x[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  float v = t[s * 32 + (lane + 1) % 32];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  t[i] = v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) sums[s] = t[(i + 32) % 64];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = t[63 - i] + sums[0] + sums[1];
  simdgroup_barrier(mem_flags::mem_none);
}
