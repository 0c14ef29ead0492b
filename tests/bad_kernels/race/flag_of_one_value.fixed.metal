// flag_of_one_value, corrected: the flag is atomic.
// expect: nothing
// launch: any_negative float32[64]=-1 int32[1]=zeros threads=64 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void any_negative(device const float* x,
                         device atomic_int* flag,
                         uint in_grid [[thread_position_in_grid]]) {
  if (x[in_grid] < 0.0f) atomic_store_explicit(flag, 1, memory_order_relaxed);
}
