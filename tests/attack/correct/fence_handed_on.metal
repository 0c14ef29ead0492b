// Group 1 passes on what it learnt from group 0: group 2 reads what group 0 wrote.
// expect: nothing
// launch: k float32[4]=zeros int32[4]=zeros float32[4]=zeros threads=4 group_size=1 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device float* data, device atomic_int* flags, device float* out, uint g [[threadgroup_position_in_grid]]) {
  if (g > 0) {
    while (atomic_load_explicit(&flags[g - 1], memory_order_relaxed) == 0) {}
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  }
  data[g] = g + 1;
  if (g == 3) out[0] = data[0] + data[1] + data[2];
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  atomic_store_explicit(&flags[g], 1, memory_order_relaxed);
}
