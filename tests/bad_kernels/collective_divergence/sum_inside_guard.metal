// The bounds guard keeps half of the last simdgroup away from simd_sum.
// expect: collective_divergence warning line 14
// launch: sums float32[48]=random float32[2]=zeros 48 threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void sums(device const float* x,
                 device float* y,
                 constant uint& length,
                 uint in_group [[thread_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]],
                 uint simd [[simdgroup_index_in_threadgroup]]) {
  if (in_group < length) {
    const float sum = simd_sum(x[in_group]);
    if (lane == 0) y[simd] = sum;
  }
}
