// Memory of its own for each.
// expect: nothing
// launch: both float32[32]=random float32[32]=zeros float32[32]=zeros threads=32
#include <metal_stdlib>
using namespace metal;

kernel void both(device const float* x,
                 device float* doubled,
                 device float* sums,
                 uint in_grid [[thread_position_in_grid]]) {
  doubled[in_grid] = 2.0f * x[in_grid];
  sums[in_grid] = doubled[in_grid] + x[in_grid];
}
