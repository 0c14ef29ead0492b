// declared_limit, corrected in the launch: as many threads as the kernel declares.
// expect: nothing
// launch: row_sums float32[128]=random float32[2]=zeros threads=128 group_size=64
#include <metal_stdlib>
using namespace metal;

[[max_total_threads_per_threadgroup(64)]]
kernel void row_sums(device const float* x,
                     device float* y,
                     uint row [[threadgroup_position_in_grid]],
                     uint in_grid [[thread_position_in_grid]],
                     uint in_group [[thread_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float partial[2];
  const float sum = simd_sum(x[in_grid]);
  if (lane == 0) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (in_group == 0) y[row] = partial[0] + partial[1];
}
