// 64 KiB of threadgroup memory where Apple GPUs have 32 (known-bad row 11).
// expect: limits error line 11
// raises: LimitError
// launch: stage float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void stage(device const float* x,
                  device float* y,
                  uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float tile[128][128];
  tile[in_group][0] = x[in_group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = tile[63 - in_group][0];
}
