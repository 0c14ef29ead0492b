// Row sums as a tree in threadgroup memory, without simdgroups.
#include <metal_stdlib>
using namespace metal;

kernel void reduce_tree(device const float* x,
                        device float* y,
                        constant uint& columns,
                        uint row [[threadgroup_position_in_grid]],
                        uint in_group [[thread_index_in_threadgroup]],
                        uint group_size [[threads_per_threadgroup]]) {
  threadgroup float tree[128];
  float sum = 0.0f;
  for (uint i = in_group; i < columns; i += group_size) sum += x[row * columns + i];
  tree[in_group] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint width = group_size / 2; width > 0; width /= 2) {
    if (in_group < width) tree[in_group] += tree[in_group + width];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (in_group == 0) y[row] = tree[0];
}
