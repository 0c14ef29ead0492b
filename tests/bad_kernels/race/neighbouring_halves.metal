// Halves in threadgroup memory: pairs of threads write the same half.
// expect: race error line 11 other 11 buffer row
// launch: halves float32[64]=range float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void halves(device const float* x,
                   device float* y,
                   uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup half row[64];
  row[in_group & ~1u] = half(x[in_group]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = float(row[in_group & ~1u]);
}
