// As many arguments as parameters.
// expect: nothing
// launch: scale float32[16]=random float32[16]=zeros 2.0 threads=16
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float* x,
                  device float* y,
                  constant float& by,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = x[in_grid] * by;
}
