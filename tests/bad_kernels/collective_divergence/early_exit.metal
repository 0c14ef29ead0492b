// Lanes without a row return, and the others go on to shuffle.
// expect: collective_divergence warning line 13
// launch: neighbours float32[40]=random float32[40]=zeros 36 threads=40 group_size=40 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void neighbours(device const float* x,
                       device float* y,
                       constant uint& length,
                       uint in_group [[thread_index_in_threadgroup]]) {
  const float value = x[in_group];
  if (in_group >= length) return;
  y[in_group] = value - simd_shuffle_xor(value, 1);
}
