// Real parts are written, imaginary parts forgotten.
// expect: unwritten_output warning line 8 buffer y index 1 count 16
// launch: to_complex float32[16]=random float32[16,2]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

kernel void to_complex(device const float* x,
                       device float* y,
                       uint in_grid [[thread_position_in_grid]]) {
  y[2 * in_grid] = x[in_grid];
}
