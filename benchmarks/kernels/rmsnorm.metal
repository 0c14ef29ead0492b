// RMSNorm over rows: y = x / sqrt(mean(x^2) + epsilon) * weight, one threadgroup a row.
#include <metal_stdlib>
using namespace metal;

kernel void rmsnorm(device const float* x [[buffer(0)]], device const float* weight [[buffer(1)]],
                    device float* y [[buffer(2)]], constant uint& columns [[buffer(3)]],
                    constant float& epsilon [[buffer(4)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint in_group [[thread_index_in_threadgroup]],
                    uint group_size [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]],
                    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  device const float* x_row = x + row * columns;
  device float* y_row = y + row * columns;

  float squares = 0.0f;
  for (uint column = in_group; column < columns; column += group_size) {
    const float value = x_row[column];
    squares += value * value;
  }
  squares = simd_sum(squares);
  if (lane == 0) partial[simd] = squares;
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const float total = simd_sum(lane < simds ? partial[lane] : 0.0f);
  const float scale = rsqrt(total / columns + epsilon);
  for (uint column = in_group; column < columns; column += group_size)
    y_row[column] = x_row[column] * scale * weight[column];
}
