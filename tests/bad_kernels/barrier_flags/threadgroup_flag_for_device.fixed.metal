// threadgroup_flag_for_device, corrected: the barrier orders device memory.
// expect: nothing
// launch: reverse float32[64]=random float32[64]=zeros float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* x,
                    device float* scratch,
                    device float* y,
                    uint in_group [[thread_index_in_threadgroup]]) {
  scratch[in_group] = 2.0f * x[in_group];
  threadgroup_barrier(mem_flags::mem_device);
  y[in_group] = scratch[63 - in_group];
}
