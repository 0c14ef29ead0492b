// Inclusive sums along rows, one threadgroup of 256 a row. A step takes 1024 columns, four a
// thread: sums of the thread, of its simdgroup, of the simdgroups before, of the steps before.
#include <metal_stdlib>
using namespace metal;

constant constexpr uint SIMDS = 8;

kernel void scan(device const float4* x [[buffer(0)]], device float4* y [[buffer(1)]],
                 constant uint& columns [[buffer(2)]], uint row [[threadgroup_position_in_grid]],
                 uint in_group [[thread_index_in_threadgroup]],
                 uint group_size [[threads_per_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]],
                 uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float totals[2][SIMDS];
  const uint vectors = columns / 4;
  device const float4* x_row = x + row * vectors;
  device float4* y_row = y + row * vectors;

  float before = 0.0f;
  uint side = 0;  // two sets of totals, so that one barrier a step is enough
  for (uint start = 0; start < vectors; start += group_size) {
    float4 value = x_row[start + in_group];
    value.y += value.x;
    value.z += value.y;
    value.w += value.z;
    const float lower = simd_prefix_exclusive_sum(value.w);
    if (lane == 31) totals[side][simd] = lower + value.w;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float lower_simds = before;
    for (uint other = 0; other < SIMDS; ++other) {
      const float total = totals[side][other];
      lower_simds += other < simd ? total : 0.0f;
      before += total;
    }
    y_row[start + in_group] = value + (lower_simds + lower);
    side ^= 1;
  }
}
