// Softmax of a row that is masked out completely: minus infinity minus minus infinity.
// expect: nan error line 17
// launch: softmax_rows float32[2,4]=1,2,3,4,-inf,-inf,-inf,-inf float32[2,4]=zeros 4 threads=2 nan
#include <metal_stdlib>
using namespace metal;

kernel void softmax_rows(device const float* x,
                         device float* y,
                         constant uint& columns,
                         uint row [[thread_position_in_grid]]) {
  x += row * columns;
  y += row * columns;
  float highest = x[0];
  for (uint i = 1; i < columns; ++i) highest = max(highest, x[i]);
  float sum = 0.0f;
  for (uint i = 0; i < columns; ++i) {
    const float below = x[i] - highest;
    sum += exp(below);
  }
  for (uint i = 0; i < columns; ++i) y[i] = exp(x[i] - highest) / sum;
}
