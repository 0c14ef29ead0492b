// The barrier stands inside the guard; the other threads have ended by then.
// expect: barrier_divergence error line 14
// launch: halves float32[64]=random float32[64]=zeros 40 outputs=none threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void halves(device const float* x,
                   device float* y,
                   constant uint& count,
                   uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float shared[64];
  shared[in_group] = x[in_group];
  if (in_group < count) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[in_group] = shared[count - 1 - in_group];
  }
}
