// A helper casts const away and scales the caller's input in place.
// expect: read_only error line 9 buffer x
// launch: scale float32[16]=random float32[16]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

void double_in_place(device const float* value) {
  device float* place = const_cast<device float*>(value);
  *place = 2.0f * *place;
}

kernel void scale(device const float* x,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  double_in_place(x + in_grid);
  y[in_grid] = x[in_grid];
}
