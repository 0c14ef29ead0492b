// threads=(20), group_size=(20), seed 8
#include <metal_stdlib>
using namespace metal;

kernel void loop_of_a_sum_in_a_loop_of_votes(
    device atomic_float* sums [[buffer(0)]],
    uint lane [[thread_index_in_simdgroup]]) {
  uint w24 = 3u;
  while (simd_any((w24 > 0u))) {
    w24 = (w24 >> 1u);
    atomic_fetch_add_explicit(&sums[(1u % 1u)], 1.0f, memory_order_relaxed);
    for (uint i25 = 1u; i25 < (lane + simd_product(1u)); i25 += 3) {
    }
  }
}
