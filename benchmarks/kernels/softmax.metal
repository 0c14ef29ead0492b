// Softmax over rows: y = exp(x - max) / sum(exp(x - max)), one threadgroup a row.
#include <metal_stdlib>
using namespace metal;

kernel void softmax(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    constant uint& columns [[buffer(2)]], uint row [[threadgroup_position_in_grid]],
                    uint in_group [[thread_index_in_threadgroup]],
                    uint group_size [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]],
                    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float maxima[32];
  threadgroup float sums[32];
  device const float* x_row = x + row * columns;
  device float* y_row = y + row * columns;

  float largest = -INFINITY;
  for (uint column = in_group; column < columns; column += group_size)
    largest = max(largest, x_row[column]);
  largest = simd_max(largest);
  if (lane == 0) maxima[simd] = largest;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  largest = simd_max(lane < simds ? maxima[lane] : -INFINITY);

  float sum = 0.0f;
  for (uint column = in_group; column < columns; column += group_size)
    sum += exp(x_row[column] - largest);
  sum = simd_sum(sum);
  if (lane == 0) sums[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float scale = 1.0f / simd_sum(lane < simds ? sums[lane] : 0.0f);

  for (uint column = in_group; column < columns; column += group_size)
    y_row[column] = exp(x_row[column] - largest) * scale;
}
