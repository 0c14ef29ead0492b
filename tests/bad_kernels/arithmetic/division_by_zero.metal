// A mean over counts of which one is zero.
// expect: arithmetic error line 11
// launch: means int32[4]=10,7,0,9 int32[4]=2,1,0,3 int32[4]=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void means(device const int* sums,
                  device const int* counts,
                  device int* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = sums[in_grid] / counts[in_grid];
}
