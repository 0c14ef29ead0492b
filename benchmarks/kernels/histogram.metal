// How often each byte occurs: counts of the threadgroup by atomics in its own memory, then added to
// those of the grid. Four bytes a thread and turn.
#include <metal_stdlib>
using namespace metal;

constant constexpr uint BINS = 256;

kernel void histogram(device const uchar4* data [[buffer(0)]],
                      device atomic_uint* counts [[buffer(1)]], constant uint& size [[buffer(2)]],
                      uint in_grid [[thread_position_in_grid]], uint threads [[threads_per_grid]],
                      uint in_group [[thread_index_in_threadgroup]],
                      uint group_size [[threads_per_threadgroup]]) {
  threadgroup atomic_uint bins[BINS];
  for (uint bin = in_group; bin < BINS; bin += group_size)
    atomic_store_explicit(&bins[bin], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  for (uint index = in_grid; index < size / 4; index += threads) {
    const uchar4 bytes = data[index];
    atomic_fetch_add_explicit(&bins[bytes.x], 1u, memory_order_relaxed);
    atomic_fetch_add_explicit(&bins[bytes.y], 1u, memory_order_relaxed);
    atomic_fetch_add_explicit(&bins[bytes.z], 1u, memory_order_relaxed);
    atomic_fetch_add_explicit(&bins[bytes.w], 1u, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  for (uint bin = in_group; bin < BINS; bin += group_size) {
    const uint count = atomic_load_explicit(&bins[bin], memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[bin], count, memory_order_relaxed);
  }
}
