// The mean over the tokens of a document that has none.
// expect: nan error line 11
// launch: means float32[4]=6,0,3,8 float32[4]=2,0,1,4 float32[4]=zeros threads=4 nan
#include <metal_stdlib>
using namespace metal;

kernel void means(device const float* sums,
                  device const float* counts,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = sums[in_grid] / counts[in_grid];
}
