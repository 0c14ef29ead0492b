// expect: nothing
// launch: k float32[64]=random float32[1]=zeros uint32[2]=zeros threads=256 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* sum, device atomic_uint* lock,
              uint i [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  if (i == 0) {
    uint ticket = atomic_fetch_add_explicit(&lock[0], 1, memory_order_relaxed);
    while (atomic_load_explicit(&lock[1], memory_order_relaxed) != ticket) {}
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    sum[0] = sum[0] * 0.5f + x[g];
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    atomic_fetch_add_explicit(&lock[1], 1, memory_order_relaxed);
  }
}
