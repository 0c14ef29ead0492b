// One simdgroup hands a value to the next through threadgroup memory, a fence and a flag.
// expect: nothing
// launch: k float32[1]=random float32[1]=zeros threads=64 group_size=64 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float value;
  threadgroup atomic_int ready;
  if (i == 0) atomic_store_explicit(&ready, 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i == 0) {
    value = x[0];
    atomic_thread_fence(mem_flags::mem_threadgroup, memory_order_seq_cst, thread_scope_threadgroup);
    atomic_store_explicit(&ready, 1, memory_order_relaxed);
  }
  if (i == 32) {
    while (atomic_load_explicit(&ready, memory_order_relaxed) == 0) {}
    atomic_thread_fence(mem_flags::mem_threadgroup, memory_order_seq_cst, thread_scope_threadgroup);
    out[0] = value;
  }
}
