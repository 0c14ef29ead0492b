// A lock for each of several sums.
// expect: nothing
// launch: k float32[64]=random float32[4]=zeros int32[4]=zeros threads=256 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* sums, device atomic_int* locks,
              uint i [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  if (i != 0) return;
  int expected = 0;
  while (!atomic_compare_exchange_weak_explicit(&locks[g % 4], &expected, 1, memory_order_relaxed, memory_order_relaxed)) expected = 0;
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst);
  sums[g % 4] += x[g];
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst);
  atomic_store_explicit(&locks[g % 4], 0, memory_order_relaxed);
}
