// expect: out_of_bounds error line 6
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

float at(threadgroup float (*tile)[4], uint row, uint column) { return tile[row][column]; }
kernel void k(device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float tile[8][4];
  for (uint n = 0; n < 4; ++n) tile[i][n] = n;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = at(tile, 0 * i, i == 2 ? 4 : 0) + i;
}
