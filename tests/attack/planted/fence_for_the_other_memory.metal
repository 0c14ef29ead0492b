// expect: race error line 10
// launch: k float32[64]=random float32[1]=zeros int32[1]=zeros threads=8 group_size=1 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* sum, device atomic_int* lock,
              uint g [[threadgroup_position_in_grid]]) {
  while (atomic_exchange_explicit(lock, 1, memory_order_relaxed)) {}
  atomic_thread_fence(mem_flags::mem_threadgroup, memory_order_seq_cst, thread_scope_device);
  sum[0] += x[g];
  atomic_thread_fence(mem_flags::mem_threadgroup, memory_order_seq_cst, thread_scope_device);
  atomic_store_explicit(lock, 0, memory_order_relaxed);
}
