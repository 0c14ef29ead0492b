// neighbouring_halves, corrected: a half each. Two halves of one word are no race.
// expect: nothing
// launch: halves float32[64]=range float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void halves(device const float* x,
                   device float* y,
                   uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup half row[64];
  row[in_group] = half(x[in_group]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = float(row[in_group & ~1u]);
}
