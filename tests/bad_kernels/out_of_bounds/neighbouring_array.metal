// Each thread writes one place too far: the last one runs from one threadgroup array into the next.
// expect: out_of_bounds error line 15 buffer shifted index 32
// launch: rotate float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void rotate(device const float* x,
                   device float* y,
                   uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float shifted[32];
  threadgroup float plain[32];
  if (in_group == 0) shifted[0] = 0.0f;
  plain[in_group] = x[in_group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shifted[in_group + 1] = plain[in_group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = shifted[in_group];
}
