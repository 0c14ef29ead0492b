// The two halves of a simdgroup wait at two different barriers.
// expect: barrier_divergence error line 16 other 13
// launch: exchange float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void exchange(device const float* x,
                     device float* y,
                     uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float row[64];
  if (in_group % 2 == 0) {
    row[in_group] = x[in_group];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  } else {
    row[in_group] = -x[in_group];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  y[in_group] = row[in_group ^ 1];
}
