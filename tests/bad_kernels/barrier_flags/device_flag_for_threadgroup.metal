// A tile in threadgroup memory behind a barrier that orders device memory.
// expect: barrier_flags error line 13 other 11 buffer tile
// launch: reverse float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* x,
                    device float* y,
                    uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float tile[64];
  tile[in_group] = x[in_group];
  threadgroup_barrier(mem_flags::mem_device);
  y[in_group] = tile[63 - in_group];
}
