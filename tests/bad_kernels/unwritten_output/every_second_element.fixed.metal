// every_second_element, corrected: the imaginary part of a real number is zero.
// expect: nothing
// launch: to_complex float32[16]=random float32[16,2]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

kernel void to_complex(device const float* x,
                       device float* y,
                       uint in_grid [[thread_position_in_grid]]) {
  y[2 * in_grid] = x[in_grid];
  y[2 * in_grid + 1] = 0.0f;
}
