// lock_inside_simdgroup, corrected: the sum needs no lock.
// expect: nothing
// launch: add_all float32[8]=random float32[1]=zeros threads=8 seconds=10
#include <metal_stdlib>
using namespace metal;

kernel void add_all(device const float* x,
                    device atomic_float* sum,
                    uint in_grid [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(sum, x[in_grid], memory_order_relaxed);
}
