// sum_inside_guard, corrected: lanes after the end take part with zero.
// expect: nothing
// launch: sums float32[48]=random float32[2]=zeros 48 threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void sums(device const float* x,
                 device float* y,
                 constant uint& length,
                 uint in_group [[thread_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]],
                 uint simd [[simdgroup_index_in_threadgroup]]) {
  const float sum = simd_sum(in_group < length ? x[in_group] : 0.0f);
  if (lane == 0) y[simd] = sum;
}
