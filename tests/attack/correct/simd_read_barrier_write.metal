// Lanes read an element, meet, and its owner writes it.
// expect: nothing
// launch: k float32[128]=random float32[128]=zeros threads=128 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]], uint n [[thread_position_in_grid]]) {
  threadgroup float cells[64];
  cells[i] = x[n];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  float left = cells[i ^ 1] + cells[i & ~31u];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  cells[i] = left;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[n] = cells[i ^ 2];
}
