// C = A B in tiles of 8 x 8, for any sizes.
#include <metal_stdlib>
using namespace metal;

kernel void matmul_tiles(device const float* a,
                         device const float* b,
                         device float* c,
                         constant uint& rows,
                         constant uint& columns,
                         constant uint& inner,
                         uint2 in_group [[thread_position_in_threadgroup]],
                         uint2 in_grid [[thread_position_in_grid]]) {
  threadgroup float a_tile[8][8];
  threadgroup float b_tile[8][8];
  const uint row = in_grid.y;
  const uint column = in_grid.x;
  float sum = 0.0f;
  for (uint start = 0; start < inner; start += 8) {
    const uint a_column = start + in_group.x;
    const uint b_row = start + in_group.y;
    float a_value = 0.0f, b_value = 0.0f;
    if (row < rows && a_column < inner) a_value = a[row * inner + a_column];
    if (b_row < inner && column < columns) b_value = b[b_row * columns + column];
    a_tile[in_group.y][in_group.x] = a_value;
    b_tile[in_group.y][in_group.x] = b_value;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < 8; ++k) sum += a_tile[in_group.y][k] * b_tile[k][in_group.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}
