// The exchange stands in a helper that gets a threadgroup pointer, and forgets to wait.
// expect: race error line 11 other 10 buffer row
// The race stands for the uninitialised read that it causes.
// launch: mirror float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

template <typename T>
T from_mirror(threadgroup T* shared, T value, uint place, uint count) {
  shared[place] = value;
  return shared[count - 1 - place];
}

kernel void mirror(device const float* x,
                   device float* y,
                   uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float row[64];
  y[in_group] = from_mirror(row, x[in_group], in_group, 64u);
}
