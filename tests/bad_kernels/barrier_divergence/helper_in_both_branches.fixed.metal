// helper_in_both_branches, corrected: one call for all threads, between two conditions on the same
// value. A compiler that merges the conditions must not make two barriers of it.
// expect: nothing
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
  float value = x[in_group];
  if (large) value *= 2.0f;
  const float other = exchange(row, value, in_group);
  if (large) {
    y[in_group] = other;
  } else {
    y[in_group] = other + 1.0f;
  }
}
