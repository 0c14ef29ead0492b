// Lanes of one simdgroup exchange values through threadgroup memory, trusting to run in step.
// expect: race error line 15 other 14 buffer row
// The race stands for the uninitialised read that it causes.
// launch: reverse float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* x,
                    device float* y,
                    uint in_group [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float row[64];
  row[in_group] = x[in_group];
  y[in_group] = row[simd * 32 + 31 - lane];
}
