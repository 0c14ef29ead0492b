// A counter that threads add to atomically while others read it as if it were plain.
// expect: race error line 14 other 13 buffer counter
// launch: count_positive float32[64]=random int32[1]=zeros float32[64]=zeros
// launch: threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void count_positive(device const float* x,
                           device atomic_int* counter,
                           device float* y,
                           uint in_group [[thread_index_in_threadgroup]]) {
  const int one = x[in_group] > 0.0f ? 1 : 0;
  atomic_fetch_add_explicit(counter, one, memory_order_relaxed);
  y[in_group] = float(*(device int*)counter);
}
