// Only the first simdgroup reaches the barrier; the other one ends without it.
// expect: barrier_divergence error line 13
// launch: first_half float32[64]=random float32[32]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void first_half(device const float* x,
                       device float* y,
                       uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float row[32];
  if (in_group < 32) {
    row[in_group] = x[in_group] + x[in_group + 32];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[in_group] = row[31 - in_group];
  }
}
