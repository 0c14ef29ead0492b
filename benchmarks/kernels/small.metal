// The smallest useful kernel: what compiling and launching cost, apart from the work itself.
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                  constant float& factor [[buffer(2)]], uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = x[in_grid] * factor;
}
