// half_output, corrected in the launch: a tensor of bytes holds whatever the kernel makes of it.
// expect: nothing
// launch: scale float32[16]=random uint8[64]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float* x,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = 0.5f * x[in_grid];
}
