// Arithmetic on one component of a vector: what C++ leaves undefined for scalars is defined here.
//
// Integers wrap around. A shift count uses its low log2(width) bits, width being the component's.
// Division and remainder by zero give 0, and the most negative value divided by -1 gives itself
// (remainder 0); neither traps. Metal leaves these three values undefined.
//
// A product that is an operand of a sum in the same expression is fused with it, as clang does with
// scalars. It cannot with components: their operators are functions. So products and such sums are
// calls of functions that nobody defines, and msl/contract.py puts instructions in their place.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/scalar.h>

template <class T>
constexpr bool am_is_integer = __is_integral(T) && !__is_same(T, bool);
template <class T>
constexpr bool am_is_signed_integer = am_is_integer<T> && T(-1) < T(0);

// The unsigned type of at least 32 bits in which T's arithmetic wraps.
template <class T, bool Wide = (sizeof(T) == 8)>
struct am_wrapping {
  typedef uint type;
};
template <class T>
struct am_wrapping<T, true> {
  typedef ulong type;
};

#define AM_WRAPPING_OPERATION(NAME, OP)           \
  template <class T>                              \
  AM_INLINE constexpr T NAME(T a, T b) {          \
    if constexpr (am_is_integer<T>) {             \
      typedef typename am_wrapping<T>::type wide; \
      return static_cast<T>(wide(a) OP wide(b));  \
    } else {                                      \
      return static_cast<T>(a OP b);              \
    }                                             \
  }
AM_WRAPPING_OPERATION(am_add, +)
AM_WRAPPING_OPERATION(am_subtract, -)
AM_WRAPPING_OPERATION(am_multiply, *)
#undef AM_WRAPPING_OPERATION

// With fast math every product may be fused with every sum: clang says so itself.
template <class T>
constexpr bool am_is_contracted =
#ifdef __FAST_MATH__
    false;
#else
    __is_same(T, float) || __is_same(T, half) || __is_same(T, bfloat);
#endif

// Which operand of a sum is a product, as it stands in the text.
enum am_products { am_left_product = 1, am_right_product = 2, am_two_products = 3 };
// A product gives the same value wherever it is computed; a sum must stay behind its own product.
#define AM_DECLARE_CONTRACTED(T)                                             \
  __attribute__((const, nothrow, noconvergent)) T am_open_product(T a, T b); \
  __attribute__((const, nothrow)) T am_open_sum(T a, T b, am_products);      \
  __attribute__((const, nothrow)) T am_open_difference(T a, T b, am_products);
AM_EACH_FLOAT(AM_DECLARE_CONTRACTED)
#undef AM_DECLARE_CONTRACTED

template <class T>
AM_INLINE constexpr T am_contracted_product(T a, T b) {
  if (__builtin_is_constant_evaluated()) return a * b;
  return am_open_product(a, b);
}
template <am_products Which, class T>
AM_INLINE constexpr T am_contracted_sum(T a, T b) {
  if (__builtin_is_constant_evaluated()) return a + b;
  return am_open_sum(a, b, Which);
}
template <am_products Which, class T>
AM_INLINE constexpr T am_contracted_difference(T a, T b) {
  if (__builtin_is_constant_evaluated()) return a - b;
  return am_open_difference(a, b, Which);
}

template <class T>
AM_INLINE constexpr T am_divide(T a, T b) {
  if constexpr (am_is_integer<T>) {
    if (b == T(0)) return T(0);
    if constexpr (am_is_signed_integer<T>) {
      if (b == T(-1)) return am_subtract(T(0), a);
    }
  }
  return static_cast<T>(a / b);
}

template <class T>
AM_INLINE constexpr T am_remainder(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (am_is_signed_integer<T>) {
    if (b == T(-1)) return T(0);
  }
  return static_cast<T>(a % b);
}

template <class T>
AM_INLINE constexpr T am_shift_left(T a, T count) {
  typedef typename am_wrapping<T>::type wide;
  return static_cast<T>(wide(a) << (wide(count) & (sizeof(T) * 8 - 1)));
}

template <class T>
AM_INLINE constexpr T am_shift_right(T a, T count) {
  return static_cast<T>(a >> (uint(count) & (sizeof(T) * 8 - 1)));
}

template <class T>
AM_INLINE constexpr T am_negate(T a) {
  if constexpr (am_is_integer<T>) {
    return am_subtract(T(0), a);
  } else {
    return static_cast<T>(-a);
  }
}

#endif
