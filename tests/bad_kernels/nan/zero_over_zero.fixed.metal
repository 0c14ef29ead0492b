// zero_over_zero, corrected: at least one token is assumed.
// expect: nothing
// launch: means float32[4]=6,0,3,8 float32[4]=2,0,1,4 float32[4]=zeros threads=4 nan
#include <metal_stdlib>
using namespace metal;

kernel void means(device const float* sums,
                  device const float* counts,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = sums[in_grid] / max(counts[in_grid], 1.0f);
}
