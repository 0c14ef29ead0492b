// A three-point stencil without care for the first and the last element.
// expect: out_of_bounds error line 13 buffer x index -1
// expect: out_of_bounds error line 14 buffer x index 64
// launch: smooth float32[64]=random float32[64]=zeros 64 threads=64 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void smooth(device const float* x,
                   device float* y,
                   constant int& length,
                   uint in_grid [[thread_position_in_grid]]) {
  const int i = int(in_grid);
  const float left = x[i - 1];
  const float right = x[i + 1];
  y[i] = 0.25f * left + 0.5f * x[i] + 0.25f * right;
}
