// 24 KiB declared in the kernel and 16 KiB asked for by the launch.
// expect: limits error
// raises: ValueError
// launch: stage float32[64]=random float32[64]=zeros threads=64 group_size=64 memory=16384
#include <metal_stdlib>
using namespace metal;

kernel void stage(device const float* x,
                  device float* y,
                  threadgroup float* row [[threadgroup(0)]],
                  uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float tile[6144];
  tile[in_group] = x[in_group];
  row[in_group] = 2.0f * x[in_group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = tile[63 - in_group] + row[63 - in_group];
}
