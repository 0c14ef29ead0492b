// The two branches call the same helper, and the barrier in it: they are two barriers all the same.
// expect: barrier_divergence error line 9 other 9
// launch: exchange_parts float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

float exchange(threadgroup float* row, float value, uint place) {
  row[place] = value;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return row[place ^ 32];
}

kernel void exchange_parts(device const float* x,
                           device float* y,
                           uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float row[64];
  const bool large = x[in_group] > 0.5f;
  if (large) {
    y[in_group] = exchange(row, 2.0f * x[in_group], in_group);
  } else {
    y[in_group] = exchange(row, x[in_group], in_group) + 1.0f;
  }
}
