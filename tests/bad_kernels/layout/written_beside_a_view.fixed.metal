// Each row where it is.
// expect: nothing
// launch: fill float32[4,8].cols=zeros 3.0 8 threads=4,4
#include <metal_stdlib>
using namespace metal;

kernel void fill(device float* y,
                 constant float& value,
                 constant uint& row_stride,
                 uint2 in_grid [[thread_position_in_grid]]) {
  y[in_grid.y * row_stride + in_grid.x] = value;
}
