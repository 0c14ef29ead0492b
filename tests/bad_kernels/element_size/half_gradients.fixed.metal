// half_gradients, corrected in the launch: the gradients are floats too.
// expect: nothing
// launch: step float32[32]=random float32[32]=random threads=32
#include <metal_stdlib>
using namespace metal;

kernel void step(device float* parameter,
                 device const float* gradient,
                 uint in_grid [[thread_position_in_grid]]) {
  parameter[in_grid] -= 0.1f * gradient[in_grid];
}
