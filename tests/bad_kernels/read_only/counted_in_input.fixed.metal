// counted_in_input, corrected: the counter's buffer is not const.
// expect: nothing
// launch: count_large float32[32]=random int32[2]=zeros threads=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void count_large(device const float* x,
                        device int* header,
                        uint in_grid [[thread_position_in_grid]]) {
  device atomic_int* counter = (device atomic_int*)(header + 1);
  if (x[in_grid] > 0.5f) atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}
