// A barrier inside a loop that threads leave after different numbers of rounds: some wait inside
// the loop while others already wait after it.
// expect: barrier_divergence error line 22 other 19
// allow: barrier_divergence warning line 19
// allow: barrier_divergence warning line 22
// launch: rounds float32[64]=random float32[64]=zeros 4 threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void rounds(device const float* x,
                   device float* y,
                   constant uint& longest,
                   uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float row[64];
  row[in_group] = x[in_group];
  const uint own = in_group < 32 ? 2 : longest;
  for (uint i = 0; i < own; ++i) {
    row[in_group] *= 0.5f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  const float mine = row[in_group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = mine;
}
