// How often each byte occurs: counts of the threadgroup by atomics in its own memory, then added to
// those of the grid. Every lane of a simdgroup has counts of its own, which lie in a bank of their
// own too: no two lanes meet. 16 bytes a load.
#include <metal_stdlib>
using namespace metal;

constant constexpr uint BINS = 256;
constant constexpr uint LANES = 32;

inline void count(threadgroup atomic_uint* own, uint4 bytes) {
#pragma unroll
  for (uint word = 0; word < 4; ++word)
#pragma unroll
    for (uint i = 0; i < 32; i += 8)
      atomic_fetch_add_explicit(&own[((bytes[word] >> i) & 255u) * LANES], 1u,
                                memory_order_relaxed);
}

kernel void histogram(device const uint4* data [[buffer(0)]],
                      device atomic_uint* counts [[buffer(1)]], constant uint& size [[buffer(2)]],
                      uint in_grid [[thread_position_in_grid]], uint threads [[threads_per_grid]],
                      uint in_group [[thread_index_in_threadgroup]],
                      uint group_size [[threads_per_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]]) {
  threadgroup atomic_uint bins[BINS * LANES];
  for (uint bin = in_group; bin < BINS * LANES; bin += group_size)
    atomic_store_explicit(&bins[bin], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const uint vectors = size / 16;
  constexpr uint loads = 4;  // on their way at once
  uint index = in_grid;
  for (; index + (loads - 1) * threads < vectors; index += loads * threads) {
    uint4 some[loads];
#pragma unroll
    for (uint i = 0; i < loads; ++i) some[i] = data[index + i * threads];
#pragma unroll
    for (uint i = 0; i < loads; ++i) count(bins + lane, some[i]);
  }
  for (; index < vectors; index += threads) count(bins + lane, data[index]);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  for (uint bin = in_group; bin < BINS; bin += group_size) {
    uint sum = 0;
    for (uint i = 0; i < LANES; ++i)  // each thread begins in another bank
      sum += atomic_load_explicit(&bins[bin * LANES + (i + bin) % LANES], memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[bin], sum, memory_order_relaxed);
  }
}
