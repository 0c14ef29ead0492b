// y = W x for 4-bit weights, one simdgroup a row. Eight weights a word, lowest bits first, each
// four bits w meaning (w - 8) * scale; 32 weights in a row share a scale.
#include <metal_stdlib>
using namespace metal;

kernel void int4_matvec(device const uint* weights [[buffer(0)]],
                        device const float* scales [[buffer(1)]],
                        device const float4* x [[buffer(2)]], device float* y [[buffer(3)]],
                        constant uint& columns [[buffer(4)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint simds [[simdgroups_per_threadgroup]]) {
  const uint row = group * simds + simd;
  const uint words = columns / 8;
  device const uint* weights_row = weights + row * words;
  device const float* scales_row = scales + row * (columns / 32);

  float sum = 0.0f;
  for (uint index = lane; index < words; index += 32) {
    const uint word = weights_row[index];
    const float4 low = float4(uint4(word, word >> 4, word >> 8, word >> 12) & 15u) - 8.0f;
    const float4 high = float4(uint4(word >> 16, word >> 20, word >> 24, word >> 28) & 15u) - 8.0f;
    sum += scales_row[index / 4] * (dot(low, x[2 * index]) + dot(high, x[2 * index + 1]));
  }
  sum = simd_sum(sum);
  if (lane == 0) y[row] = sum;
}
