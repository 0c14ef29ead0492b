// expect: race error
// allow: uninitialised error
// launch: k float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float cells[64];
  cells[i] = x[i]; simdgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = cells[i ^ 32];
}
