// Odd and even lanes each find a maximum, in two branches: each sees its own half only.
// expect: collective_divergence warning line 12
// expect: collective_divergence warning line 14
// launch: maxima float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void maxima(device const float* x,
                   device float* y,
                   uint lane [[thread_index_in_simdgroup]]) {
  if (lane % 2 == 0) {
    y[lane] = simd_max(x[lane]);
  } else {
    y[lane] = simd_max(-x[lane]);
  }
}
