// threads=(20), group_size=(20), seed 75
#include <metal_stdlib>
using namespace metal;

kernel void break_before_a_barrier_in_a_loop(
    device const half* in4 [[buffer(0)]],
    device float* out13 [[buffer(1)]],
    uint in_grid [[thread_position_in_grid]]) {
  float v22 = 1.0f;
  for (uint i28 = 0u; i28 < 1u; ++i28) {
    int i29 = 0;
    while (true) {
      i29 += 1;
      if ((i29 > 8)) {
        break;
      }
      v22 = (simd_sum(1.0f) - v22);
      if ((1.0h >= in4[1u])) {
        break;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  out13[in_grid] = v22;
}
