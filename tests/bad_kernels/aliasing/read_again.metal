// The input is read again after the output, which is the same memory, is written.
// expect: aliasing error line 13 other 12 buffer x index 0
// allow: aliasing warning line 12
// launch: both float32[32]=random &0 float32[32]=zeros threads=32
#include <metal_stdlib>
using namespace metal;

kernel void both(device const float* x,
                 device float* doubled,
                 device float* sums,
                 uint in_grid [[thread_position_in_grid]]) {
  doubled[in_grid] = 2.0f * x[in_grid];
  sums[in_grid] = doubled[in_grid] + x[in_grid];
}
