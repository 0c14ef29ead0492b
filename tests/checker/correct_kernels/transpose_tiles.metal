// A transpose through tiles of 16 x 16 in threadgroup memory, guarded at the edges.
#include <metal_stdlib>
using namespace metal;

kernel void transpose_tiles(device const float* x,
                            device float* y,
                            constant uint& rows,
                            constant uint& columns,
                            uint2 in_group [[thread_position_in_threadgroup]],
                            uint2 group [[threadgroup_position_in_grid]]) {
  threadgroup float tile[16][17];
  const uint row = group.y * 16 + in_group.y;
  const uint column = group.x * 16 + in_group.x;
  if (row < rows && column < columns) {
    tile[in_group.y][in_group.x] = x[row * columns + column];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint y_row = group.x * 16 + in_group.y;
  const uint y_column = group.y * 16 + in_group.x;
  if (y_row < columns && y_column < rows) {
    y[y_row * rows + y_column] = tile[in_group.x][in_group.y];
  }
}
