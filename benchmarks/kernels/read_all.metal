// What a kernel that only reads can reach: each threadgroup's words, exclusively or-ed. 16 bytes a
// load, four on their way at once.
#include <metal_stdlib>
using namespace metal;

inline uint all_of(uint4 words) { return (words.x ^ words.y) ^ (words.z ^ words.w); }

kernel void read_all(device const uint4* data [[buffer(0)]], device uint* found [[buffer(1)]],
                     constant uint& vectors [[buffer(2)]], uint in_grid [[thread_position_in_grid]],
                     uint threads [[threads_per_grid]], uint group [[threadgroup_position_in_grid]],
                     uint simd [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]]) {
  threadgroup uint parts[32];
  constexpr uint loads = 4;
  uint total = 0, index = in_grid;
  for (; index + (loads - 1) * threads < vectors; index += loads * threads) {
    uint4 some[loads];
#pragma unroll
    for (uint i = 0; i < loads; ++i) some[i] = data[index + i * threads];
#pragma unroll
    for (uint i = 0; i < loads; ++i) total ^= all_of(some[i]);
  }
  for (; index < vectors; index += threads) total ^= all_of(data[index]);
  total = simd_xor(total);
  if (lane == 0) parts[simd] = total;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd != 0) return;
  total = simd_xor(lane < simdgroups ? parts[lane] : 0);
  if (lane == 0) found[group] = total;
}
