// masked_row, corrected: a row without a finite value has weights of zero.
// expect: nothing
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
  if (highest == -INFINITY) {
    for (uint i = 0; i < columns; ++i) y[i] = 0.0f;
    return;
  }
  float sum = 0.0f;
  for (uint i = 0; i < columns; ++i) {
    const float below = x[i] - highest;
    sum += exp(below);
  }
  for (uint i = 0; i < columns; ++i) y[i] = exp(x[i] - highest) / sum;
}
