// A tile with a padded column, read by rows and by columns.
// expect: nothing
// launch: k float32[64]=random float32[64]=zeros threads=8,8 group_size=8,8
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint2 i [[thread_position_in_threadgroup]]) {
  threadgroup float tile[8][9];
  tile[i.y][i.x] = x[i.y * 8 + i.x];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i.y * 8 + i.x] = tile[i.x][i.y];
}
