// expect: race error line 12
// launch: k float32[64]=random float32[8]=zeros int32[1]=zeros float32[1]=zeros threads=8 group_size=1 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* partial, device atomic_int* done, device float* out,
              uint g [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]]) {
  partial[g] = x[g] + 1;
  if (atomic_fetch_add_explicit(done, 1, memory_order_relaxed) == int(groups) - 1) {
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    float total = 0;
    for (uint n = 0; n < groups; ++n) total += partial[n];
    out[0] = total;
  }
}
