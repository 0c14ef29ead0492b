// The threads that share a row: a simdgroup each, or a whole threadgroup; and their sums.
//
// The row is the second coordinate of the grid, so a threadgroup is (team, rows of a threadgroup).
#pragma once
#include "shared/types.h"

constant constexpr uint most_simdgroups = 32;

struct Team {
  uint index;       // of this thread in the team
  uint size;        // threads
  uint lane;        // of this thread in its simdgroup
  uint simd;        // of this simdgroup in the threadgroup
  uint simdgroups;  // of the threadgroup
};

// A place for each simdgroup, twice.
constant constexpr uint scratch_places = 2 * most_simdgroups;

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
