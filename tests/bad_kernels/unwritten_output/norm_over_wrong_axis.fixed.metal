// norm_over_wrong_axis, corrected in the launch: six rows of eight.
// expect: nothing
// launch: norm float32[2,3,8]=random float32[2,3,8]=zeros 8 threads=6
#include <metal_stdlib>
using namespace metal;

kernel void norm(device const float* x,
                 device float* y,
                 constant uint& columns,
                 uint row [[thread_position_in_grid]]) {
  float square = 0.0f;
  for (uint i = 0; i < columns; ++i) square += x[row * columns + i] * x[row * columns + i];
  const float scale = rsqrt(square / float(columns) + 1e-5f);
  for (uint i = 0; i < columns; ++i) y[row * columns + i] = scale * x[row * columns + i];
}
