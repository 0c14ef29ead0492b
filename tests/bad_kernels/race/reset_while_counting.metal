// One thread sets a counter to zero with a plain store while the others add to it.
// expect: race error line 14 other 13 buffer count
// allow: uninitialised error line 14 buffer count
// launch: count_positive float32[64]=random int32[1]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void count_positive(device const float* x,
                           device int* y,
                           uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup int count;
  threadgroup atomic_int* counter = (threadgroup atomic_int*)&count;
  if (in_group == 0) count = 0;
  if (x[in_group] > 0.0f) atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (in_group == 0) y[0] = count;
}
