// lanes_without_barrier, corrected: a simdgroup barrier is enough inside one simdgroup.
// expect: nothing
// launch: reverse float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* x,
                    device float* y,
                    uint in_group [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float row[64];
  row[in_group] = x[in_group];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = row[simd * 32 + 31 - lane];
}
