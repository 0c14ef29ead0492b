// What a kernel that only reads can reach: each threadgroup's words, exclusively or-ed. 16 bytes a
// load, which nobody reads again, and nine of them on their way at once: as was fastest on an H200
// for the weights of a matrix.
#include <metal_stdlib>
using namespace metal;
#if __has_include(<anymetal/ahead.h>)
#include <anymetal/ahead.h>
#endif

inline uint all_of(device const uint4* from) {
#ifdef anymetal_read_once
  uint words[4];
  anymetal_read_once(words, from);
  return (words[0] ^ words[1]) ^ (words[2] ^ words[3]);
#else
  const uint4 words = *from;
  return (words.x ^ words.y) ^ (words.z ^ words.w);
#endif
}

kernel void read_all(device const uint4* data [[buffer(0)]], device uint* found [[buffer(1)]],
                     constant uint& vectors [[buffer(2)]], uint in_grid [[thread_position_in_grid]],
                     uint threads [[threads_per_grid]], uint group [[threadgroup_position_in_grid]],
                     uint simd [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]]) {
  threadgroup uint parts[32];
  constexpr uint loads = 9;
  uint total = 0;
  for (uint index = in_grid; index < vectors; index += loads * threads) {
    uint some[loads];
#pragma unroll
    for (uint i = 0; i < loads; ++i) some[i] = all_of(data + min(index + i * threads, vectors - 1));
#pragma unroll
    for (uint i = 0; i < loads; ++i) total ^= index + i * threads < vectors ? some[i] : 0;
  }
  total = simd_xor(total);
  if (lane == 0) parts[simd] = total;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd != 0) return;
  total = simd_xor(lane < simdgroups ? parts[lane] : 0);
  if (lane == 0) found[group] = total;
}
