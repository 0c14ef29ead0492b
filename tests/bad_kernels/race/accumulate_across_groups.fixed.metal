// accumulate_across_groups, corrected: the total is an atomic float.
// expect: nothing
// launch: sum_rows float32[4,32]=random float32[1]=zeros threads=128 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void sum_rows(device const float* x,
                     device atomic_float* total,
                     uint row [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  const float sum = simd_sum(x[row * 32 + lane]);
  if (lane == 0) atomic_fetch_add_explicit(total, sum, memory_order_relaxed);
}
