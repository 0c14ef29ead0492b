// A tile filled through a pointer to its first element.
// expect: nothing
// launch: k float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float tile[8][8];
  threadgroup float* line = &tile[0][0];
  line[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = tile[i / 8][7 - i % 8];
}
