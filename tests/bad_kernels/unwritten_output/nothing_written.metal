// An output the kernel was told to fill and does not touch at all.
// expect: unwritten_output error line 8 buffer y index 0 count 8
// launch: double_it float32[8]=random float32[8]=zeros float32[8]=zeros threads=8 outputs=1,2
#include <metal_stdlib>
using namespace metal;

kernel void double_it(device const float* x,
                      device float* y,
                      device float* other,
                      uint in_grid [[thread_position_in_grid]]) {
  const float value = 2.0f * x[in_grid];
  other[in_grid] = value;
  if (value != value) y[in_grid] = value;
}
