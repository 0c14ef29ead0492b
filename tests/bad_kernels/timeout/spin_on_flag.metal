// A thread waits for another one of its own simdgroup, which waits behind it.
// expect: timeout error line 7
// launch: hand_over int32[1]=zeros int32[2]=zeros threads=2 seconds=0.5
#include <metal_stdlib>
using namespace metal;

kernel void hand_over(device atomic_int* flag,
                      device int* y,
                      uint in_group [[thread_index_in_threadgroup]]) {
  if (in_group == 1) atomic_store_explicit(flag, 7, memory_order_relaxed);
  if (in_group == 0) {
    while (atomic_load_explicit(flag, memory_order_relaxed) == 0) {
    }
  }
  y[in_group] = atomic_load_explicit(flag, memory_order_relaxed);
}
