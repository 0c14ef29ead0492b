// An inclusive scan by one threadgroup, block after block: prefixes inside a simdgroup, the totals of
// the simdgroups through threadgroup memory, the total of a block carried to the next.
#include <metal_stdlib>
using namespace metal;

kernel void scan_blocks(device const float* x,
                        device float* y,
                        constant uint& length,
                        uint in_group [[thread_index_in_threadgroup]],
                        uint group_size [[threads_per_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float totals[32];
  float carry = 0.0f;
  for (uint start = 0; start < length; start += group_size) {
    const uint i = start + in_group;
    const float value = i < length ? x[i] : 0.0f;
    const float prefix = simd_prefix_inclusive_sum(value);
    if (lane == 31) totals[simd] = prefix;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float before = carry;
    for (uint s = 0; s < simds; ++s) {
      const float total = totals[s];
      if (s < simd) before += total;
      carry += total;
    }
    if (i < length) y[i] = before + prefix;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}
