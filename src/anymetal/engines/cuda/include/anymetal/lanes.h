// How the lanes of a simdgroup exchange values: by shuffles of a warp.
//
// The active lanes of a call are the lanes of the warp that run it together.
#pragma once
#include <anymetal/machine.h>
#include <anymetal/wide.h>

// The value that lane `from` brought; `mask` has the physical lanes that are here.
template <class T>
AM_INLINE T am_shuffled(T value, unsigned from, unsigned mask) {
  constexpr int words = (sizeof(T) + 3) / 4;
  int in[words] = {}, out[words];
  __builtin_memcpy(in, &value, sizeof(T));
#pragma clang loop unroll(full)
  for (int i = 0; i < words; ++i)
    out[i] = __nvvm_shfl_sync_idx_i32(mask, in[i], am_physical(from), 31);
  T result;
  __builtin_memcpy(&result, out, sizeof(T));
  return result;
}

// The values of all lanes, as an array; every lane must read it at the same places of the program.
template <class T>
struct am_lane_values {
  T own;
  unsigned mask;

  AM_INLINE T operator[](unsigned lane) const { return am_shuffled(own, lane, mask); }
};

// Every lane brings its value, and takes what `pick(values, active, lane)` makes of all of them.
template <class T, class Pick>
AM_INLINE auto am_exchange(T value, Pick pick) {
  unsigned mask = __nvvm_activemask();
  return pick(am_lane_values<T>{value, mask}, am_logical_mask(mask), am_lane());
}

// The active lanes.
AM_INLINE unsigned am_meet() { return am_logical_mask(__nvvm_activemask()); }
