// missing_simdgroups, corrected: lanes without a simdgroup bring zero.
// expect: nothing
// launch: row_sums float32[2,64]=random float32[2]=zeros threads=128 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void row_sums(device const float* x,
                     device float* y,
                     uint row [[threadgroup_position_in_grid]],
                     uint in_grid [[thread_position_in_grid]],
                     uint in_group [[thread_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]],
                     uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  const float sum = simd_sum(x[in_grid]);
  if (lane == 0) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float total = simd_sum(lane < simds ? partial[lane] : 0.0f);
  if (in_group == 0) y[row] = total;
}
