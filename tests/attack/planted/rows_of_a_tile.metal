// expect: out_of_bounds error line 10
// allow: race error
// launch: k float32[64]=random float32[64]=zeros threads=64 group_size=64 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float tile[9][8];
  uint row = i / 8, column = i % 8 + 1;
  tile[row][column] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = tile[row][1];
}
