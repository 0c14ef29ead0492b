// loop_of_own_length, corrected: all lanes make all rounds.
// expect: nothing
// launch: weighted float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void weighted(device const float* x,
                     device float* y,
                     uint lane [[thread_index_in_simdgroup]]) {
  const float value = x[lane];
  float sum = 0.0f;
  for (uint i = 0; i < 32; ++i) {
    const float first = simd_broadcast_first(value);
    if (i <= lane) sum += first;
  }
  y[lane] = sum;
}
