// early_exit, corrected: the condition stands after the shuffle. A simdgroup that the grid cuts
// short has no missing lanes.
// expect: nothing
// launch: neighbours float32[40]=random float32[40]=zeros 36 threads=40 group_size=40 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void neighbours(device const float* x,
                       device float* y,
                       constant uint& length,
                       uint in_group [[thread_index_in_threadgroup]]) {
  const float value = x[in_group];
  const float other = simd_shuffle_xor(value, 1);
  if (in_group < length) y[in_group] = value - other;
}
