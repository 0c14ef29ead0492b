// Lanes exchange values through threadgroup memory behind a simdgroup barrier without flags.
// expect: barrier_flags error line 13 other 11 buffer row
// launch: rotate float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void rotate(device const float* x,
                   device float* y,
                   uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float row[32];
  row[lane] = x[lane];
  simdgroup_barrier(mem_flags::mem_none);
  y[lane] = row[(lane + 1) % 32];
}
