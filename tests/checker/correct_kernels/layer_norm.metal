// Layer norm over rows held in threadgroup memory; mean and variance are handed to all threads.
#include <metal_stdlib>
using namespace metal;

kernel void layer_norm(device const float* x,
                       device const float* weight,
                       device const float* bias,
                       device float* y,
                       constant uint& columns,
                       uint row [[threadgroup_position_in_grid]],
                       uint in_group [[thread_index_in_threadgroup]],
                       uint group_size [[threads_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simd [[simdgroup_index_in_threadgroup]],
                       uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float cache[100];
  threadgroup float partial[32];
  threadgroup float statistic;
  float sum = 0.0f;
  for (uint i = in_group; i < columns; i += group_size) {
    const float value = x[row * columns + i];
    cache[i] = value;
    sum += value;
  }
  sum = simd_sum(sum);
  if (lane == 0) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0) {
    const float total = simd_sum(lane < simds ? partial[lane] : 0.0f);
    if (lane == 0) statistic = total / float(columns);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float mean = statistic;
  float squares = 0.0f;
  for (uint i = in_group; i < columns; i += group_size) {
    const float difference = cache[columns - 1 - i] - mean;
    squares += difference * difference;
  }
  squares = simd_sum(squares);
  if (lane == 0) partial[simd] = squares;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0) {
    const float total = simd_sum(lane < simds ? partial[lane] : 0.0f);
    if (lane == 0) statistic = total / float(columns);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float scale = rsqrt(statistic + 1e-5f);
  for (uint i = in_group; i < columns; i += group_size) {
    y[row * columns + i] = (cache[i] - mean) * scale * weight[i] + bias[i];
  }
}
