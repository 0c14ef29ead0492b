// LayerNorm over rows: y = (x - mean) / sqrt(variance + epsilon) * weight + bias, one threadgroup a
// row. The variance is taken about the mean, in a second pass.
#include <metal_stdlib>
using namespace metal;

inline float group_sum(float value, threadgroup float* partial, uint lane, uint simd, uint simds) {
  value = simd_sum(value);
  if (lane == 0) partial[simd] = value;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_sum(lane < simds ? partial[lane] : 0.0f);
}

kernel void layernorm(device const float* x [[buffer(0)]], device const float* weight [[buffer(1)]],
                      device const float* bias [[buffer(2)]], device float* y [[buffer(3)]],
                      constant uint& columns [[buffer(4)]], constant float& epsilon [[buffer(5)]],
                      uint row [[threadgroup_position_in_grid]],
                      uint in_group [[thread_index_in_threadgroup]],
                      uint group_size [[threads_per_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simd [[simdgroup_index_in_threadgroup]],
                      uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float sums[32];
  threadgroup float squares[32];
  device const float* x_row = x + row * columns;
  device float* y_row = y + row * columns;

  float sum = 0.0f;
  for (uint column = in_group; column < columns; column += group_size) sum += x_row[column];
  const float mean = group_sum(sum, sums, lane, simd, simds) / columns;

  float square = 0.0f;
  for (uint column = in_group; column < columns; column += group_size) {
    const float centred = x_row[column] - mean;
    square += centred * centred;
  }
  const float variance = group_sum(square, squares, lane, simd, simds) / columns;
  const float scale = rsqrt(variance + epsilon);

  for (uint column = in_group; column < columns; column += group_size)
    y_row[column] = (x_row[column] - mean) * scale * weight[column] + bias[column];
}
