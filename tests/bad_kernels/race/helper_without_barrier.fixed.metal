// helper_without_barrier, corrected: the helper waits between writing and reading.
// expect: nothing
// launch: mirror float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

template <typename T>
T from_mirror(threadgroup T* shared, T value, uint place, uint count) {
  shared[place] = value;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return shared[count - 1 - place];
}

kernel void mirror(device const float* x,
                   device float* y,
                   uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float row[64];
  y[in_group] = from_mirror(row, x[in_group], in_group, 64u);
}
