// A row cache of fixed size in threadgroup memory, filled with a longer row (known-bad row 12).
// expect: out_of_bounds error line 19 buffer row_cache index 8192
// expect: out_of_bounds error line 23 buffer row_cache index 8192
// launch: centre float32[1,8300]=random float32[1,8300]=zeros 8300 threads=128 group_size=128
#include <metal_stdlib>
using namespace metal;

constant constexpr uint cached = 8192;

kernel void centre(device const float* x,
                   device float* y,
                   constant uint& columns,
                   uint row [[threadgroup_position_in_grid]],
                   uint in_group [[thread_index_in_threadgroup]],
                   uint group_size [[threads_per_threadgroup]]) {
  threadgroup float row_cache[cached];
  x += row * columns;
  y += row * columns;
  for (uint i = in_group; i < columns; i += group_size) row_cache[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float first = row_cache[0];
  for (uint i = in_group; i < columns; i += group_size) {
    y[i] = row_cache[i] - first;
  }
}
