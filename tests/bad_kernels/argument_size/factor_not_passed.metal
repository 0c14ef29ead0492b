// The factor is not passed.
// expect: argument_size error
// raises: MissingArgument
// launch: scale float32[16]=random float32[16]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float* x,
                  device float* y,
                  constant float& by,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = x[in_grid] * by;
}
