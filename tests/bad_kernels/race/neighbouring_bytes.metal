// Two threads write one byte each, and both mean the same one.
// expect: race error line 10 other 10 buffer y
// launch: signs float32[64]=range uint8[64]=zeros threads=64 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void signs(device const float* x,
                  device uchar* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid / 2] = uchar(x[in_grid]);
}
