// spin_on_flag, corrected: a barrier does the waiting.
// expect: nothing
// launch: hand_over int32[1]=zeros int32[2]=zeros threads=2 seconds=10
#include <metal_stdlib>
using namespace metal;

kernel void hand_over(device atomic_int* flag,
                      device int* y,
                      uint in_group [[thread_index_in_threadgroup]]) {
  if (in_group == 1) atomic_store_explicit(flag, 7, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_device);
  y[in_group] = atomic_load_explicit(flag, memory_order_relaxed);
}
