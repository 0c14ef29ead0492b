// The threads that share a row: a simdgroup each, or a whole threadgroup; and their sums.
//
// The row is the second coordinate of the grid, so a threadgroup is (team, rows of a threadgroup).
#pragma once
#include "shared/vectors.h"

constant constexpr uint most_simdgroups = 32;

struct Team {
  uint index;       // of this thread in the team
  uint size;        // threads
  uint lane;        // of this thread in its simdgroup
  uint simd;        // of this simdgroup in the threadgroup
  uint simdgroups;  // of the threadgroup
};

// A place for each simdgroup, twice for sums and twice for pairs of sums.
constant constexpr uint scratch_places = 4 * most_simdgroups;

// The sum over the team, for every thread of it. All threads of the team must come here. Two sums
// that follow each other must use different halves of `scratch` (0 and 1): then one barrier a sum
// is enough, since nobody writes to a half before all have read what was there.
template <bool alone, uint half_of_scratch>
inline float team_sum(float value, thread const Team& team, threadgroup float* scratch) {
  const float sum = simd_sum(value);
  if constexpr (alone) return sum;
  scratch += half_of_scratch * most_simdgroups;
  if (team.lane == 0) scratch[team.simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_sum(team.lane < team.simdgroups ? scratch[team.lane] : 0.0f);
}

// Two sums at once, in places of their own: another sum must come before the next pair.
template <bool alone>
inline float2 team_sums(float2 values, thread const Team& team, threadgroup float* scratch) {
  const float2 sums = simd_sum(values);
  if constexpr (alone) return sums;
  threadgroup float2* places = reinterpret_cast<threadgroup float2*>(scratch + 2 * most_simdgroups);
  if (team.lane == 0) places[team.simd] = sums;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_sum(team.lane < team.simdgroups ? places[team.lane] : float2(0.0f));
}

// The sum over a simdgroup whose lanes are all there.
inline float lanes_sum(float value) {
#pragma unroll
  for (uint mask = 1; mask < 32; mask *= 2) value += simd_shuffle_xor(value, mask);
  return value;
}

// Several sums at once: `count` is 1, 2, 4 or 8. Lanes whose numbers differ in one bit exchange the
// half of their values that is the other's, so that few values are exchanged. `scratch` has `count`
// places for each simdgroup; the next sums of the team must use others. Between a thread's sharing
// its values and taking the sums there must be a barrier.
template <uint count>
inline void share_team_sums(thread float* values, thread const Team& team,
                            threadgroup float* scratch) {
  const float own = own_sum<count, 32>(values, team.lane);
  if (team.lane < count) scratch[team.simd * count + team.lane] = own;
}

// The sums take the place of a thread's own values; there are at most `most` simdgroups.
template <uint count, uint most>
inline void take_team_sums(thread float* values, thread const Team& team,
                           threadgroup const float* scratch) {
  float own = 0.0f;
#pragma unroll
  for (uint i = 0; i < (count * most + 31) / 32; ++i) {
    const uint at = i * 32 + team.lane;
    if (at < team.simdgroups * count) own += scratch[at];
  }
#pragma unroll
  for (uint mask = count; mask < 32; mask *= 2) own += simd_shuffle_xor(own, mask);
#pragma unroll
  for (uint i = 0; i < count; ++i) values[i] = simd_shuffle(own, i);
}

template <uint count, uint most = most_simdgroups>
inline void exchange_team_sums(thread float* values, thread const Team& team,
                               threadgroup float* scratch) {
  share_team_sums<count>(values, team, scratch);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  take_team_sums<count, most>(values, team, scratch);
}
