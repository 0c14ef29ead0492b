// Each simdgroup turns its 32 values around in its own part of threadgroup memory.
#include <metal_stdlib>
using namespace metal;

kernel void rotate_lanes(device const float* x,
                         device float* y,
                         uint in_grid [[thread_position_in_grid]],
                         uint in_group [[thread_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float part[2][32];
  part[simd][lane] = x[in_grid];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const float value = part[simd][31 - lane];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  part[simd][lane] = 2.0f * value;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  y[in_grid] = part[simd][lane ^ 1];
}
