// Gradients in float16 handed to a kernel for floats: one half is read as garbage, the other lies
// outside (known-bad row 8).
// expect: element_size error line 10 buffer gradient
// expect: out_of_bounds error line 12 buffer gradient index 16
// launch: step float32[32]=random float16[32]=random threads=32
#include <metal_stdlib>
using namespace metal;

kernel void step(device float* parameter,
                 device const float* gradient,
                 uint in_grid [[thread_position_in_grid]]) {
  parameter[in_grid] -= 0.1f * gradient[in_grid];
}
