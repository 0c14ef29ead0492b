// const_cast_away, corrected: what is written is declared as such.
// expect: nothing
// launch: scale float32[16]=random float32[16]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

void double_in_place(device float* place) {
  *place = 2.0f * *place;
}

kernel void scale(device float* x,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  double_in_place(x + in_grid);
  y[in_grid] = x[in_grid];
}
