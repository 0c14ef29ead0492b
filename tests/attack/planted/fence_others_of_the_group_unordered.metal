// expect: race error line 19
// launch: k float32[64]=random float32[64]=zeros int32[1]=zeros float32[1]=zeros threads=64 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* partial, device atomic_int* done, device float* out,
              uint i [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]],
              uint groups [[threadgroups_per_grid]]) {
  // Nothing orders the other threads' writes before the fence of thread 0.
  partial[g * 8 + i] = x[g * 8 + i];
  if (i != 0) return;
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  int before = atomic_fetch_add_explicit(done, 1, memory_order_relaxed);
  if (before == int(groups) - 1) {
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    float total = 0;
    for (uint n = 0; n < groups * 8; n += 3)
      // anything but the threads' own
      total += partial[n];
    out[0] = total;
  }
}
