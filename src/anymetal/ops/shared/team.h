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

// The sum over the team, for every thread of it. All threads of the team must come here, and
// `scratch` has a place for each simdgroup.
template <bool alone>
inline float team_sum(float value, thread const Team& team, threadgroup float* scratch) {
  const float sum = simd_sum(value);
  if constexpr (alone) return sum;
  if (team.lane == 0) scratch[team.simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float others = team.lane < team.simdgroups ? scratch[team.lane] : 0.0f;
  const float total = simd_sum(others);
  threadgroup_barrier(mem_flags::mem_threadgroup);  // before the next sum writes
  return total;
}
