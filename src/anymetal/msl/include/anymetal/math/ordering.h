// min, max and what follows from them, for every number type.
//
// Of two floats one of which is NaN the other is the result; of two equal ones (0 and -0) the
// first.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/math/bits.h>

#pragma float_control(precise, on, push)  // whatever the kernel's author chose

namespace am_math {

template <class T>
AM_INLINE constexpr T min(T x, T y) {
  return y < x || x != x ? y : x;
}
template <class T>
AM_INLINE constexpr T max(T x, T y) {
  return x < y || x != x ? y : x;
}
template <class T>
AM_INLINE constexpr T min3(T x, T y, T z) {
  return min(x, min(y, z));
}
template <class T>
AM_INLINE constexpr T max3(T x, T y, T z) {
  return max(x, max(y, z));
}
// The middle one; a NaN counts as missing.
template <class T>
AM_INLINE constexpr T median3(T x, T y, T z) {
  return max(min(x, y), min(max(x, y), z));
}
template <class T>
AM_INLINE constexpr T clamp(T x, T low, T high) {
  return min(max(x, low), high);
}

// The names of the same functions that only floats have.
template <class T>
AM_INLINE constexpr T fmin(T x, T y) {
  return min(x, y);
}
template <class T>
AM_INLINE constexpr T fmax(T x, T y) {
  return max(x, y);
}
template <class T>
AM_INLINE constexpr T fmin3(T x, T y, T z) {
  return min3(x, y, z);
}
template <class T>
AM_INLINE constexpr T fmax3(T x, T y, T z) {
  return max3(x, y, z);
}
template <class T>
AM_INLINE constexpr T fmedian3(T x, T y, T z) {
  return median3(x, y, z);
}

}  // namespace am_math

#pragma float_control(pop)

#endif
