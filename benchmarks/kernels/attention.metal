// One query row a threadgroup against its first `lengths[row]` keys, head dimension 64, 128
// threads. Keys come in blocks of 128, one a thread, with a running maximum and sum. The output has
// 64 columns, so each half of the threadgroup adds up one half of the block's values.
#include <metal_stdlib>
using namespace metal;

constant constexpr uint HEAD = 64;
constant constexpr uint THREADS = 128;
constant constexpr uint SIMDS = THREADS / 32;

kernel void attention(device const float* queries [[buffer(0)]],
                      device const float* keys [[buffer(1)]],
                      device const float* values [[buffer(2)]], device float* output [[buffer(3)]],
                      device const int* lengths [[buffer(4)]], constant float& scale [[buffer(5)]],
                      uint row [[threadgroup_position_in_grid]],
                      uint in_group [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float query[HEAD];
  threadgroup float weights[THREADS];
  threadgroup float maxima[SIMDS];
  threadgroup float sums[SIMDS];
  threadgroup float upper[HEAD];
  const int length = lengths[row];
  const uint column = in_group % HEAD;
  const uint part = in_group / HEAD;

  if (in_group < HEAD) query[in_group] = queries[row * HEAD + in_group] * scale;
  threadgroup_barrier(mem_flags::mem_threadgroup);

  float maximum = -INFINITY;
  float sum = 0.0f;
  float result = 0.0f;
  for (int start = 0; start < length; start += THREADS) {
    const int key = start + int(in_group);
    float score = -INFINITY;
    if (key < length) {
      score = 0.0f;
      for (uint i = 0; i < HEAD; ++i) score += query[i] * keys[key * HEAD + i];
    }
    const float simd_maximum = simd_max(score);
    if (lane == 0) maxima[simd] = simd_maximum;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    float raised = maximum;
    for (uint i = 0; i < SIMDS; ++i) raised = max(raised, maxima[i]);
    const float weight = exp(score - raised);
    weights[in_group] = weight;
    const float simd_total = simd_sum(weight);
    if (lane == 0) sums[simd] = simd_total;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    const float shrink = exp(maximum - raised);
    maximum = raised;
    sum *= shrink;
    result *= shrink;
    for (uint i = 0; i < SIMDS; ++i) sum += sums[i];
    const int first = int(part * HEAD);
    const int count = min(int(HEAD), length - start - first);
    for (int i = 0; i < count; ++i)
      result += weights[first + i] * values[(start + first + i) * HEAD + column];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  if (part == 1) upper[column] = result;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (part == 0) output[row * HEAD + column] = (result + upper[column]) / sum;
}
