// Tail threads of an attention tile return before a barrier the others still pass; the keys they
// should have loaded are missing, and the rest read uninitialised memory (known-bad row 10).
// expect: barrier_divergence warning line 18
// expect: uninitialised error line 20 buffer tile
// launch: scores float32[40]=random float32[64]=random float32[40]=zeros 40
// launch: threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void scores(device const float* queries,
                   device const float* keys,
                   device float* y,
                   constant uint& count,
                   uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float tile[64];
  if (in_group >= count) return;
  tile[in_group] = keys[in_group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (uint i = 0; i < 64; ++i) sum += queries[in_group] * tile[i];
  y[in_group] = sum;
}
