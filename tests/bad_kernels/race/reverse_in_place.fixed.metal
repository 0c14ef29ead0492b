// reverse_in_place, corrected: all have read before the first one writes.
// expect: nothing
// launch: reverse float32[64]=random threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device float* x, uint in_group [[thread_index_in_threadgroup]]) {
  const float value = x[in_group];
  threadgroup_barrier(mem_flags::mem_device);
  x[63 - in_group] = value;
}
