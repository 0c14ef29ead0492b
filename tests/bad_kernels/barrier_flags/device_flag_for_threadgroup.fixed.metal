// device_flag_for_threadgroup, corrected: the barrier names the memory that is shared.
// expect: nothing
// launch: reverse float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* x,
                    device float* y,
                    uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float tile[64];
  tile[in_group] = x[in_group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = tile[63 - in_group];
}
