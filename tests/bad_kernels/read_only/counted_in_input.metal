// An atomic counter kept in a buffer that the kernel declares as input.
// expect: read_only error line 11 buffer header
// launch: count_large float32[32]=random int32[2]=zeros threads=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void count_large(device const float* x,
                        device const int* header,
                        uint in_grid [[thread_position_in_grid]]) {
  device atomic_int* counter = (device atomic_int*)(header + 1);
  if (x[in_grid] > 0.5f) atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}
