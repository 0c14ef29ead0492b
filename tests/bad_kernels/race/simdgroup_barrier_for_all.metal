// A simdgroup barrier where the whole threadgroup has to wait.
// expect: race error line 14 other 12 buffer row
// The race stands for the uninitialised read that it causes.
// launch: reverse float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* x,
                    device float* y,
                    uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float row[64];
  row[in_group] = x[in_group];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = row[63 - in_group];
}
