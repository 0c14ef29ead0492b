// histogram_without_atomics, corrected: the additions are atomic.
// expect: nothing
// launch: histogram int32[8]=1,3,1,0,2,3,1,1 int32[4]=zeros threads=8
#include <metal_stdlib>
using namespace metal;

kernel void histogram(device const int* values,
                      device atomic_int* bins,
                      uint in_grid [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&bins[values[in_grid]], 1, memory_order_relaxed);
}
