// Row sums: one threadgroup a row, simdgroups first, their sums through threadgroup memory.
#include <metal_stdlib>
using namespace metal;

kernel void reduce_rows(device const float* x,
                        device float* y,
                        constant uint& columns,
                        uint row [[threadgroup_position_in_grid]],
                        uint in_group [[thread_index_in_threadgroup]],
                        uint group_size [[threads_per_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  float sum = 0.0f;
  for (uint i = in_group; i < columns; i += group_size) sum += x[row * columns + i];
  sum = simd_sum(sum);
  if (lane == 0) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0) {
    const float total = simd_sum(lane < simds ? partial[lane] : 0.0f);
    if (lane == 0) y[row] = total;
  }
}
