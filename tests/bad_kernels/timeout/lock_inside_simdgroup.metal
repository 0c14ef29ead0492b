// A spin lock for a sum: the first thread takes it and never gives it back.
// expect: timeout error line 7
// launch: add_all float32[8]=random int32[1]=zeros float32[1]=zeros threads=8 seconds=0.5
#include <metal_stdlib>
using namespace metal;

kernel void add_all(device const float* x,
                    device atomic_int* lock,
                    device float* sum,
                    uint in_grid [[thread_position_in_grid]]) {
  int free = 0;
  while (!atomic_compare_exchange_weak_explicit(lock, &free, 1, memory_order_relaxed,
                                                memory_order_relaxed)) {
    free = 0;
  }
  sum[0] += x[in_grid];
  if (in_grid != 0) atomic_store_explicit(lock, 0, memory_order_relaxed);
}
