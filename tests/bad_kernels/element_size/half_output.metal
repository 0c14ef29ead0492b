// A float kernel writes to a bfloat16 tensor: the first half of the results fills all of it.
// expect: element_size error line 9 buffer y
// expect: out_of_bounds error line 11 buffer y index 8
// launch: scale float32[16]=random bfloat16[16]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float* x,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = 0.5f * x[in_grid];
}
