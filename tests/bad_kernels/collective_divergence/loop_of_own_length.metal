// Lanes leave a loop after different numbers of rounds, and it broadcasts in every round.
// expect: collective_divergence warning line 12
// launch: weighted float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void weighted(device const float* x,
                     device float* y,
                     uint lane [[thread_index_in_simdgroup]]) {
  const float value = x[lane];
  float sum = 0.0f;
  for (uint i = 0; i <= lane; ++i) sum += simd_broadcast_first(value);
  y[lane] = sum;
}
