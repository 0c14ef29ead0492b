// The gradient of LayerNorm over rows by its input, one threadgroup a row. With n = (x - mean) * r
// the normalised row and g = dy * weight: dx = r * (g - mean(g) - n * mean(g * n)).
#include <metal_stdlib>
using namespace metal;

kernel void layernorm_backward(
    device const float* dy [[buffer(0)]], device const float* x [[buffer(1)]],
    device const float* weight [[buffer(2)]], device const float* means [[buffer(3)]],
    device const float* scales [[buffer(4)]], device float* dx [[buffer(5)]],
    constant uint& columns [[buffer(6)]], uint row [[threadgroup_position_in_grid]],
    uint in_group [[thread_index_in_threadgroup]], uint group_size [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float2 partial[32];
  device const float* dy_row = dy + row * columns;
  device const float* x_row = x + row * columns;
  device float* dx_row = dx + row * columns;
  const float mean = means[row], scale = scales[row];

  float2 sums = 0.0f;
  for (uint column = in_group; column < columns; column += group_size) {
    const float gradient = dy_row[column] * weight[column];
    const float normalised = (x_row[column] - mean) * scale;
    sums += float2(gradient, gradient * normalised);
  }
  sums = simd_sum(sums);
  if (lane == 0) partial[simd] = sums;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sums = simd_sum(lane < simds ? partial[lane] : float2(0.0f)) / columns;

  for (uint column = in_group; column < columns; column += group_size) {
    const float gradient = dy_row[column] * weight[column];
    const float normalised = (x_row[column] - mean) * scale;
    dx_row[column] = scale * (gradient - sums.x - normalised * sums.y);
  }
}
