// The rows of a transposed tensor are columns in memory.
// expect: layout warning line 7 buffer x
// launch: sum_rows float32[8,4].t=random float32[4]=zeros 8 threads=4
#include <metal_stdlib>
using namespace metal;

kernel void sum_rows(device const float* x,
                     device float* sums,
                     constant uint& columns,
                     uint row [[thread_position_in_grid]]) {
  float sum = 0;
  for (uint k = 0; k < columns; ++k)
    sum += x[row * columns + k];
  sums[row] = sum;
}
