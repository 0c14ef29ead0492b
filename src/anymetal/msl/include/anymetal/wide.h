// All lanes of a simdgroup side by side in one clang vector: what a collective computes on.
//
// A value of a lane takes `stride` neighbouring elements (a vector of three components has a fourth
// that nobody reads), so one element-wise operation works on all lanes and all components at once.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/scalar.h>

template <class S, int Count>
using am_wide = S __attribute__((ext_vector_type(Count)));
// The same in memory, where nothing is known about its alignment.
template <class S, int Count>
struct __attribute__((packed)) am_wide_in_memory {
  am_wide<S, Count> value;
};

template <class T, T... I>
struct am_indices {};
template <int Count>
using am_counting = __make_integer_seq<am_indices, int, Count>;

template <class T>
struct am_lane_layout {
  typedef T element;
  static constexpr int stride = 1;
};
template <class T, int N>
struct am_lane_layout<metal::vec<T, N>> {
  typedef T element;
  static constexpr int stride = N == 3 ? 4 : N;
};

template <class S, int Count>
AM_INLINE am_wide<S, Count> am_load_wide(const void* from) {
  return static_cast<const am_wide_in_memory<S, Count>*>(from)->value;
}
template <class S, int Count>
AM_INLINE void am_store_wide(void* to, am_wide<S, Count> value) {
  static_cast<am_wide_in_memory<S, Count>*>(to)->value = value;
}

// Bit l of the mask as a truth value for each of the `Stride` elements of lane l.
template <int Stride, int... I>
AM_INLINE am_wide<bool, 32 * Stride> am_wide_mask(unsigned mask, am_indices<int, I...>) {
  am_wide<bool, 32> lanes = __builtin_bit_cast(am_wide<bool, 32>, mask);
  return __builtin_shufflevector(lanes, lanes, (I / Stride)...);
}

#endif
