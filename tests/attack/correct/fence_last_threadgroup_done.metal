// Partial sums, then the last threadgroup adds them up.
// expect: nothing
// launch: k float32[256]=random float32[8]=zeros int32[1]=zeros float32[1]=zeros threads=256 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* partial, device atomic_int* done, device float* out,
              uint i [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]],
              uint groups [[threadgroups_per_grid]]) {
  threadgroup bool last;
  float sum = simd_sum(x[g * 32 + i]);
  if (i == 0) {
    partial[g] = sum;
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    last = atomic_fetch_add_explicit(done, 1, memory_order_relaxed) == int(groups) - 1;
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (last && i == 0) {
    float total = 0;
    for (uint n = 0; n < groups; ++n) total += partial[n];
    out[0] = total;
  }
}
