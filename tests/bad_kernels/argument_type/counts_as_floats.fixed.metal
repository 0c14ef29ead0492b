// The twin of counts_as_floats.metal: the tensor has the kernel's type.
// expect: nothing
// launch: scale float32[16]=range float32[16]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float* x,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = 0.5f * x[in_grid];
}
