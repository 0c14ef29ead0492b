// threads=(20), group_size=(20), seed 3
#include <metal_stdlib>
using namespace metal;

kernel void same_sum_in_both_arms(
    device uint* out13 [[buffer(0)]],
    uint in_group [[thread_index_in_threadgroup]],
    uint in_grid [[thread_position_in_grid]]) {
  int v31 = 0;
  if ((in_group < 1u)) {
    v31 = simd_sum(1);
  } else {
    v31 = simd_sum(1);
  }
  out13[in_grid] = uint(v31);
}
