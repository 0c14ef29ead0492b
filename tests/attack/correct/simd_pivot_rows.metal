// An elimination in one simdgroup: all lanes read the pivot, then its owner changes it.
// expect: nothing
// launch: k float32[64]=random float32[64]=zeros threads=64 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint lane [[thread_position_in_threadgroup]], uint n [[thread_position_in_grid]]) {
  threadgroup float row[32];
  row[lane] = x[n];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint p = 0; p < 8; ++p) {
    float pivot = row[p];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == p) row[p] = pivot * 0.5f; else if (lane > p) row[lane] -= pivot;
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[n] = row[lane];
}
