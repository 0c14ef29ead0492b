// Each thread has a fence of its own before the barrier.
// expect: nothing
// launch: k float32[256]=random float32[256]=zeros int32[1]=zeros float32[32]=zeros threads=256 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* partial, device atomic_int* done, device float* out,
              uint i [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]],
              uint groups [[threadgroups_per_grid]]) {
  partial[g * 32 + i] = x[g * 32 + i];
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  int before = atomic_fetch_add_explicit(done, 1, memory_order_relaxed);
  if (before == int(groups) * 32 - 1) {
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    float total = 0;
    for (uint n = 0; n < groups * 32; ++n) total += partial[n];
    out[0] = total;
  }
}
