// Counts of values from 0 to 15: each threadgroup counts for itself, then adds to the whole.
#include <metal_stdlib>
using namespace metal;

kernel void histogram(device const int* x,
                      device atomic_uint* counts,
                      constant uint& length,
                      uint in_group [[thread_index_in_threadgroup]],
                      uint group_size [[threads_per_threadgroup]],
                      uint in_grid [[thread_position_in_grid]]) {
  threadgroup atomic_uint bins[16];
  for (uint i = in_group; i < 16; i += group_size) {
    atomic_store_explicit(&bins[i], 0, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (in_grid < length) {
    atomic_fetch_add_explicit(&bins[x[in_grid]], 1, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = in_group; i < 16; i += group_size) {
    const uint count = atomic_load_explicit(&bins[i], memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[i], count, memory_order_relaxed);
  }
}
