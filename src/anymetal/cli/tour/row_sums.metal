#include <metal_stdlib>
using namespace metal;
// clang-format off: short lines, for a terminal of 80 columns.
// One threadgroup adds up one row: parts of it, then halves.
kernel void row_sums(device const float* x, device float* sums,
                     constant uint& columns,
                     uint row [[threadgroup_position_in_grid]],
                     uint i [[thread_index_in_threadgroup]],
                     uint size [[threads_per_threadgroup]]) {
  threadgroup float partial[256];
  float sum = 0;
  for (uint k = i; k < columns; k += size)
    sum += x[row * columns + k];
  partial[i] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint step = size / 2; step > 0; step /= 2) {
    if (i < step) partial[i] += partial[i + step];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (i == 0) sums[row] = partial[0];
}
