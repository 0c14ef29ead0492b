// Threadgroups add their row sums to one total with a plain read and write.
// expect: race error line 12 other 12 buffer total
// launch: sum_rows float32[4,32]=random float32[1]=zeros threads=128 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void sum_rows(device const float* x,
                     device float* total,
                     uint row [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  const float sum = simd_sum(x[row * 32 + lane]);
  if (lane == 0) total[0] += sum;
}
