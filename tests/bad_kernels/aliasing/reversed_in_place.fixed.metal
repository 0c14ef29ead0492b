// The result has memory of its own.
// expect: nothing
// launch: reverse float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* x,
                    device float* y,
                    uint in_group [[thread_index_in_threadgroup]],
                    uint size [[threads_per_threadgroup]]) {
  float value = x[size - 1 - in_group];
  threadgroup_barrier(mem_flags::mem_device);
  y[in_group] = value;
}
