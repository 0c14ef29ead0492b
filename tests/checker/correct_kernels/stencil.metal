// A three-point mean: each threadgroup loads its part of the row with one neighbour on each side.
#include <metal_stdlib>
using namespace metal;

kernel void stencil(device const float* x,
                    device float* y,
                    constant uint& length,
                    uint in_group [[thread_index_in_threadgroup]],
                    uint group_size [[threads_per_threadgroup]],
                    uint in_grid [[thread_position_in_grid]]) {
  threadgroup float tile[66];
  tile[in_group + 1] = x[in_grid];
  if (in_group == 0) tile[in_group] = in_grid > 0 ? x[in_grid - 1] : 0.0f;
  if (in_group == group_size - 1) {
    tile[in_group + 2] = in_grid + 1 < length ? x[in_grid + 1] : 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_grid] = (tile[in_group] + tile[in_group + 1] + tile[in_group + 2]) / 3.0f;
}
