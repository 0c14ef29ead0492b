// simdgroup_mem_none, corrected: the simdgroup barrier orders threadgroup memory.
// expect: nothing
// launch: rotate float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void rotate(device const float* x,
                   device float* y,
                   uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float row[32];
  row[lane] = x[lane];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  y[lane] = row[(lane + 1) % 32];
}
