// A lock around a plain sum.
// expect: nothing
// launch: k float32[64]=random float32[1]=zeros int32[1]=zeros threads=256 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* sum, device atomic_int* lock,
              uint i [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  if (i == 0) {
    while (atomic_exchange_explicit(lock, 1, memory_order_relaxed)) {}
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    sum[0] += x[g];
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    atomic_store_explicit(lock, 0, memory_order_relaxed);
  }
}
