// attention_score_slot, corrected: a barrier at the end of each iteration.
// expect: nothing
// launch: attend float32[64]=random float32[3,64]=random float32[3,64]=random float32[64]=zeros 3
// launch: threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void attend(device const float* query,
                   device const float* keys,
                   device const float* values,
                   device float* y,
                   constant uint& count,
                   uint in_group [[thread_index_in_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]],
                   uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float shared[2];
  float result = 0.0f, sum = 0.0f;
  for (uint key = 0; key < count; ++key) {
    const float part = simd_sum(query[in_group] * keys[key * 64 + in_group]);
    if (lane == 0) shared[simd] = part;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float weight = exp((shared[0] + shared[1]) * 0.125f);
    sum += weight;
    result += weight * values[key * 64 + in_group];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  y[in_group] = result / sum;
}
