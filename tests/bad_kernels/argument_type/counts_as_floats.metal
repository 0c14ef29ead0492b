// Counts are passed to a kernel of floats, which takes their bits for tiny numbers.
// expect: argument_type error line 7 buffer x
// launch: scale int32[16]=range float32[16]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float* x,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = 0.5f * x[in_grid];
}
