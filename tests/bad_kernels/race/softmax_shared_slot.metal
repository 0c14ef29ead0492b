// Row softmax whose maximum and sum travel through one slot; the first simdgroup writes the sum
// while others may still have to read the maximum (known-bad row 1).
// expect: race error line 26 other 31 buffer shared
// launch: softmax_rows float32[2,48]=random float32[2,48]=zeros 48 threads=128 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void softmax_rows(device const float* x,
                         device float* y,
                         constant uint& columns,
                         uint row [[threadgroup_position_in_grid]],
                         uint in_group [[thread_index_in_threadgroup]],
                         uint group_size [[threads_per_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float shared[1];
  x += row * columns;
  y += row * columns;
  if (simd == 0) {
    float value = -INFINITY;
    for (uint i = lane; i < columns; i += 32) value = max(value, x[i]);
    value = simd_max(value);
    if (lane == 0) shared[0] = value;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float highest = shared[0];
  if (simd == 0) {
    float value = 0.0f;
    for (uint i = lane; i < columns; i += 32) value += exp(x[i] - highest);
    value = simd_sum(value);
    if (lane == 0) shared[0] = value;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float sum = shared[0];
  for (uint i = in_group; i < columns; i += group_size) y[i] = exp(x[i] - highest) / sum;
}
