// C = A B for row-major square matrices, one 32x32 tile of C a threadgroup, tiles of A and B in
// threadgroup memory. The side is a multiple of 32.
#include <metal_stdlib>
using namespace metal;

constant constexpr uint TILE = 32;

kernel void matmul(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                   device float* c [[buffer(2)]], constant uint& side [[buffer(3)]],
                   uint2 in_grid [[thread_position_in_grid]],
                   uint2 in_group [[thread_position_in_threadgroup]]) {
  threadgroup float a_tile[TILE][TILE];
  threadgroup float b_tile[TILE][TILE];
  float sum = 0.0f;
  for (uint start = 0; start < side; start += TILE) {
    a_tile[in_group.y][in_group.x] = a[in_grid.y * side + start + in_group.x];
    b_tile[in_group.y][in_group.x] = b[(start + in_group.y) * side + in_grid.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < TILE; ++k) sum += a_tile[in_group.y][k] * b_tile[k][in_group.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  c[in_grid.y * side + in_grid.x] = sum;
}
