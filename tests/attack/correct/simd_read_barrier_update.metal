// The owner reads its element again before it writes it.
// expect: nothing
// launch: k float32[64]=random float32[64]=zeros threads=64 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint lane [[thread_position_in_threadgroup]], uint n [[thread_position_in_grid]]) {
  threadgroup float row[32];
  row[lane] = x[n];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint p = 0; p < 31; ++p) {
    float pivot = row[p], last = row[31];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    row[lane] -= 0.01f * pivot * last;
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[n] = row[lane];
}
