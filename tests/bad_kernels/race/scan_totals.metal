// An inclusive scan: the totals of the simdgroups are added up before all of them are written
// (known-bad row 5).
// expect: race error line 19 other 16 buffer totals
// The race stands for the uninitialised read that it causes.
// launch: scan float32[128]=random float32[128]=zeros threads=128 group_size=128
#include <metal_stdlib>
using namespace metal;

kernel void scan(device const float* x,
                 device float* y,
                 uint in_group [[thread_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]],
                 uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float totals[4];
  const float prefix = simd_prefix_inclusive_sum(x[in_group]);
  if (lane == 31) totals[simd] = prefix;
  float before = 0.0f;
  for (uint i = 0; i < 4; ++i) {
    const float total = totals[i];
    if (i < simd) before += total;
  }
  y[in_group] = before + prefix;
}
