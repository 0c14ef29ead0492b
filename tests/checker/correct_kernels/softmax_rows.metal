// Row softmax: the maximum and the sum of a row pass through the same array, one after the other.
#include <metal_stdlib>
using namespace metal;

kernel void softmax_rows(device const float* x,
                         device float* y,
                         constant uint& columns,
                         uint row [[threadgroup_position_in_grid]],
                         uint in_group [[thread_index_in_threadgroup]],
                         uint group_size [[threads_per_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]],
                         uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  const uint first = row * columns;
  float highest = -INFINITY;
  for (uint i = in_group; i < columns; i += group_size) highest = max(highest, x[first + i]);
  highest = simd_max(highest);
  if (lane == 0) partial[simd] = highest;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  highest = simd_max(lane < simds ? partial[lane] : -INFINITY);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (uint i = in_group; i < columns; i += group_size) sum += exp(x[first + i] - highest);
  sum = simd_sum(sum);
  if (lane == 0) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sum = simd_sum(lane < simds ? partial[lane] : 0.0f);
  for (uint i = in_group; i < columns; i += group_size) {
    y[first + i] = exp(x[first + i] - highest) / sum;
  }
}
