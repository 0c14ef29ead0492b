// simdgroup_barrier_for_all, corrected: a threadgroup barrier.
// expect: nothing
// launch: reverse float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* x,
                    device float* y,
                    uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float row[64];
  row[in_group] = x[in_group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = row[63 - in_group];
}
