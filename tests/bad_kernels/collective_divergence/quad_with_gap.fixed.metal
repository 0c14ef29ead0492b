// quad_with_gap, corrected: it brings zero.
// expect: nothing
// launch: sums float32[32]=random float32[8]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void sums(device const float* x,
                 device float* y,
                 uint lane [[thread_index_in_simdgroup]],
                 uint quad_lane [[thread_index_in_quadgroup]]) {
  const float sum = quad_sum(quad_lane == 3 ? 0.0f : x[lane]);
  if (quad_lane == 0) y[lane / 4] = sum;
}
