// expect: out_of_bounds error line 8
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  device atomic_int* counter = nullptr;
  atomic_fetch_add_explicit(counter, 1, memory_order_relaxed); out[i] = 1;
}
