// A norm over the last dimension of a 2 x 3 x 8 tensor whose caller takes size(1) for the length of
// a row: two rows of three are written, 42 elements never (known-bad row 9).
// expect: unwritten_output warning line 9 buffer y index 6 count 42
// launch: norm float32[2,3,8]=random float32[2,3,8]=zeros 3 threads=2
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
