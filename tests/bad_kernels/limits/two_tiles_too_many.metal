// Each tile is allowed, all three together are 48 KiB.
// expect: limits error line 15
// raises: LimitError
// launch: stage float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

constant constexpr uint side = 64;

kernel void stage(device const float* x,
                  device float* y,
                  uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float queries[side * side];
  threadgroup float keys[side * side];
  threadgroup float values[side * side];
  queries[in_group] = x[in_group];
  keys[in_group] = 2.0f * x[in_group];
  values[in_group] = 3.0f * x[in_group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = queries[63 - in_group] + keys[63 - in_group] + values[63 - in_group];
}
