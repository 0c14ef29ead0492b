// expect: barrier_flags error line 12
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float cells[32];
  cells[i] = x[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  float other = cells[i ^ 1];
  simdgroup_barrier(mem_flags::mem_device);
  cells[i] = other; out[i] = other;
}
