// Functions that round, take a float apart or put it together, and the correctly rounded
// operations. All are exact or correctly rounded.
//
// floor, ceil, trunc, rint, round, sqrt and fma are instructions (roundps, sqrtps, vfmadd) where
// the processor has SSE4.1 and FMA; on older ones LLVM calls floorf, ..., fmaf. They are written as
// elementwise builtins because the others become calls that set errno under float_control.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/math/bits.h>
#if __has_include(<anymetal/reciprocal_root.h>)
#include <anymetal/reciprocal_root.h>
#endif

#pragma float_control(precise, on, push)  // whatever the kernel's author chose

namespace am_math {

AM_INLINE float ceil(float x) { return __builtin_elementwise_ceil(x); }
AM_INLINE float floor(float x) { return __builtin_elementwise_floor(x); }
AM_INLINE float trunc(float x) { return __builtin_elementwise_trunc(x); }
AM_INLINE float rint(float x) { return __builtin_elementwise_rint(x); }    // ties to even
AM_INLINE float round(float x) { return __builtin_elementwise_round(x); }  // ties away from zero
AM_INLINE float sqrt(float x) { return __builtin_elementwise_sqrt(x); }

// 1 / sqrt(x). From double, no float's result falls so close to a tie that the second rounding
// could be wrong (all mantissas were tried). A machine may have a faster form.
#if __has_include(<anymetal/reciprocal_root.h>)
AM_INLINE float rsqrt(float x) { return am_reciprocal_root(x); }
#else
AM_INLINE float rsqrt(float x) { return float(1.0 / __builtin_elementwise_sqrt(double(x))); }
#endif

AM_INLINE float divide(float x, float y) { return x / y; }
AM_INLINE float fma(float a, float b, float c) { return __builtin_elementwise_fma(a, b, c); }

// x - floor(x), kept below 1 where a small negative x would round up to it. NaN for inf.
AM_INLINE float fract(float x) {
  float rest = x - __builtin_elementwise_floor(x);
  return rest < 1.0f || rest != rest ? rest : 0x1.fffffep-1f;
}

// Both parts carry the sign of x; the fraction of an infinity is zero.
AM_INLINE float modf(float x, float& whole) {
  whole = __builtin_elementwise_trunc(x);
  return copysign(fabs(x) == infinity ? 0.0f : x - whole, x);
}

AM_INLINE float fdim(float x, float y) { return x <= y ? 0.0f : x - y; }

// x - y * trunc(x / y), exact. In double a quotient below 2^29 is off by one at most, and its
// product with the 24 bits of y is exact; larger quotients take several rounds.
AM_INLINE float fmod(float x, float y) {
  double rest = double(fabs(x)), divisor = double(fabs(y));
  if (!(rest < double(infinity)) || !(divisor > 0.0)) return not_a_number;
  while (rest >= divisor && divisor < double(infinity)) {
    double step = divisor;
    while (rest >= step * 0x1p29) step *= 0x1p28;
    rest = rest - __builtin_elementwise_trunc(rest / step) * step;
    rest = rest < 0.0 ? rest + step : rest;
  }
  return copysign(float(rest), x);
}

// The neighbour of x in the direction of y.
AM_INLINE float nextafter(float x, float y) {
  uint bits = bits_of(x);
  bool away_from_zero = (x < y) == (x > 0.0f);
  float next = float_of(away_from_zero ? bits + 1 : bits - 1);
  next = x == 0.0f ? copysign(0x1p-149f, y) : next;
  next = x == y ? y : next;
  return __builtin_isunordered(x, y) ? x + y : next;
}
AM_INLINE half nextafter(half x, half y) {
  ushort bits = bits_of(x);
  bool away_from_zero = (x < y) == (x > half(0.0f));
  half next = half_of(away_from_zero ? bits + 1 : bits - 1);
  next = x == half(0.0f) ? copysign(half_of(1), y) : next;
  next = x == y ? y : next;
  return __builtin_isunordered(float(x), float(y)) ? half(x + y) : next;
}

// The exponent e of a finite x = m * 2^e with 1 <= |m| < 2.
AM_INLINE int exponent_of(float x) {
  bool denormal = fabs(x) < 0x1p-126f;
  uint bits = bits_of(denormal ? x * 0x1p25f : x);
  return int(bits >> 23 & 0xff) - 127 - (denormal ? 25 : 0);
}

AM_INLINE bool is_zero_or_not_finite(float x) { return x == 0.0f || !(fabs(x) < infinity); }

// FP_ILOGB0 for zero, FP_ILOGBNAN for NaN, the largest int for infinities.
AM_INLINE int ilogb(float x) {
  int special = x == 0.0f ? -2147483647 - 1 : 2147483647;
  return is_zero_or_not_finite(x) ? special : exponent_of(x);
}

// x = mantissa * 2^exponent, 1/2 <= |mantissa| < 1. Zeros, infinities and NaN have exponent 0.
AM_INLINE float frexp(float x, int& exponent) {
  bool special = is_zero_or_not_finite(x);
  bool denormal = fabs(x) < 0x1p-126f;
  uint bits = bits_of(denormal ? x * 0x1p25f : x);
  exponent = special ? 0 : exponent_of(x) + 1;
  return special ? x : float_of((bits & 0x807fffffu) | 0x3f000000u);
}

// x * 2^k. The product is exact in double, so that denormal results, too, are rounded once.
AM_INLINE float ldexp(float x, int k) {
  k = k < -300 ? -300 : k > 300 ? 300 : k;
  return float(double(x) * power_of_two_double(k));
}

}  // namespace am_math

#pragma float_control(pop)

#endif
