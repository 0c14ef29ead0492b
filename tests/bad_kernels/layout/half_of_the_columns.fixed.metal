// The kernel is told how far apart the rows are.
// expect: nothing
// launch: sum_rows float32[4,8].cols=random float32[4]=zeros 4 8 threads=4
#include <metal_stdlib>
using namespace metal;

kernel void sum_rows(device const float* x,
                     device float* sums,
                     constant uint& columns,
                     constant uint& row_stride,
                     uint row [[thread_position_in_grid]]) {
  float sum = 0;
  for (uint k = 0; k < columns; ++k)
    sum += x[row * row_stride + k];
  sums[row] = sum;
}
