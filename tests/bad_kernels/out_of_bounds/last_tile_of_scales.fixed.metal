// last_tile_of_scales, corrected: scales after the last value are not loaded.
// expect: nothing
// launch: dot_quantised int8[96]=range float32[6]=random float32[96]=random float32[2]=zeros
// launch: 96 threads=128 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void dot_quantised(device const char* weights,
                          device const float* scales,
                          device const float* x,
                          device float* partial,
                          constant uint& length,
                          uint tile [[threadgroup_position_in_grid]],
                          uint in_group [[thread_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float tile_scales[4];
  threadgroup float sums[2];
  const uint i = tile * 64 + in_group;
  const uint scale = tile * 4 + in_group;
  if (in_group < 4) tile_scales[in_group] = scale * 16 < length ? scales[scale] : 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float value = i < length ? float(weights[i]) * tile_scales[in_group / 16] * x[i] : 0.0f;
  const float sum = simd_sum(value);
  if (lane == 0) sums[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (in_group == 0) partial[tile] = sums[0] + sums[1];
}
