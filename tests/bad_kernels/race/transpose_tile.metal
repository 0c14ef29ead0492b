// A transpose through a tile in threadgroup memory, read before it is full.
// expect: race error line 17 other 14 buffer tile
// The race stands for the uninitialised read that it causes.
// launch: transpose float32[16,16]=random float32[16,16]=zeros threads=16,16 group_size=8,8
#include <metal_stdlib>
using namespace metal;

kernel void transpose(device const float* x,
                      device float* y,
                      uint2 in_grid [[thread_position_in_grid]],
                      uint2 in_group [[thread_position_in_threadgroup]],
                      uint2 group [[threadgroup_position_in_grid]]) {
  threadgroup float tile[8][8];
  tile[in_group.y][in_group.x] = x[in_grid.y * 16 + in_grid.x];
  const uint row = group.x * 8 + in_group.y;
  const uint column = group.y * 8 + in_group.x;
  y[row * 16 + column] = tile[in_group.x][in_group.y];
}
