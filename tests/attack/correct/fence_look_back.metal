// A scan over threadgroups: each waits for the prefix of the one before.
// expect: nothing
// launch: k float32[256]=random float32[8]=zeros int32[8]=zeros float32[256]=zeros threads=256 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* prefix, device atomic_int* ready, device float* out,
              uint i [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  threadgroup float before;
  float own = simd_prefix_inclusive_sum(x[g * 32 + i]), all = simd_sum(x[g * 32 + i]);
  if (i == 0) {
    float sum = 0;
    if (g > 0) {
      while (atomic_load_explicit(&ready[g - 1], memory_order_relaxed) == 0) {}
      atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
      sum = prefix[g - 1];
    }
    before = sum;
    prefix[g] = sum + all;
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    atomic_store_explicit(&ready[g], 1, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[g * 32 + i] = before + own;
}
