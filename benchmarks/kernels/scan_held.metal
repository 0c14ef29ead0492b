// Inclusive sums along rows, one threadgroup a row. A step takes 32 columns a thread, eight times
// four: sums of four neighbours, of a simdgroup's lanes, of its steps before, of the simdgroups and
// of the steps before. All loads of a step are on their way at once, and one barrier is enough for
// it.
#include <metal_stdlib>
using namespace metal;

constant constexpr uint HELD = 8;

// Of the lanes up to this one.
inline float sum_up_to(float value, uint lane) {
#pragma unroll
  for (uint delta = 1; delta < 32; delta *= 2) {
    const float other = simd_shuffle_up(value, delta);
    value += lane >= delta ? other : 0.0f;
  }
  return value;
}

kernel void scan(device const float4* x [[buffer(0)]], device float4* y [[buffer(1)]],
                 constant uint& columns [[buffer(2)]], uint row [[threadgroup_position_in_grid]],
                 uint lane [[thread_index_in_simdgroup]],
                 uint simd [[simdgroup_index_in_threadgroup]],
                 uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float totals[2][32];  // by turns, so that one barrier a step is enough
  const uint vectors = columns / 4, step = simds * HELD * 32;
  x += row * vectors;
  y += row * vectors;
  float before = 0.0f;
  const uint turns = (vectors + step - 1) / step;
  for (uint turn = 0; turn < turns; ++turn) {
    const uint first = turn * step + simd * HELD * 32 + lane;
    float4 held[HELD];
#pragma unroll
    for (uint i = 0; i < HELD; ++i)
      held[i] = first + i * 32 < vectors ? x[first + i * 32] : float4(0.0f);
    float sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < HELD; ++i) {
      float4 value = held[i];
      value.y += value.x;
      value.z += value.y;
      value.w += value.z;
      const float up_to = sum_up_to(value.w, lane);
      held[i] = value + (sum + (up_to - value.w));
      sum += simd_shuffle(up_to, 31);
    }
    if (lane == 0) totals[turn % 2][simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float total = lane < simds ? totals[turn % 2][lane] : 0.0f;
    const float all = sum_up_to(total, lane);
    const float lower = before + simd_shuffle(all - total, simd);
    before += simd_shuffle(all, 31);
#pragma unroll
    for (uint i = 0; i < HELD; ++i)
      if (first + i * 32 < vectors) y[first + i * 32] = held[i] + lower;
  }
}
