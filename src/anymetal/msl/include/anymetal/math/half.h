// Math on half: computed in float, rounded once to half; exact where Metal asks for it.
//
// float carries more than twice the bits of half, so quotients, roots and sums rounded twice come
// out as if rounded once. The fused multiply-add needs care, and so does fract next to 1.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/math/exponential.h>
#include <anymetal/math/hyperbolic.h>
#include <anymetal/math/inverse_trigonometric.h>
#include <anymetal/math/logarithm.h>
#include <anymetal/math/power.h>
#include <anymetal/math/rounding.h>
#include <anymetal/math/trigonometric.h>

#pragma float_control(precise, on, push)  // whatever the kernel's author chose

namespace am_math {

#define AM_THROUGH_FLOAT_1(NAME) \
  AM_INLINE half NAME(half x) { return half(NAME(float(x))); }
AM_THROUGH_FLOAT_1(acos)
AM_THROUGH_FLOAT_1(acosh)
AM_THROUGH_FLOAT_1(asin)
AM_THROUGH_FLOAT_1(asinh)
AM_THROUGH_FLOAT_1(atan)
AM_THROUGH_FLOAT_1(atanh)
AM_THROUGH_FLOAT_1(ceil)
AM_THROUGH_FLOAT_1(cos)
AM_THROUGH_FLOAT_1(cosh)
AM_THROUGH_FLOAT_1(cospi)
AM_THROUGH_FLOAT_1(exp)
AM_THROUGH_FLOAT_1(exp10)
AM_THROUGH_FLOAT_1(exp2)
AM_THROUGH_FLOAT_1(floor)
AM_THROUGH_FLOAT_1(log)
AM_THROUGH_FLOAT_1(log10)
AM_THROUGH_FLOAT_1(log2)
AM_THROUGH_FLOAT_1(rint)
AM_THROUGH_FLOAT_1(round)
AM_THROUGH_FLOAT_1(rsqrt)
AM_THROUGH_FLOAT_1(sin)
AM_THROUGH_FLOAT_1(sinh)
AM_THROUGH_FLOAT_1(sinpi)
AM_THROUGH_FLOAT_1(sqrt)
AM_THROUGH_FLOAT_1(tan)
AM_THROUGH_FLOAT_1(tanh)
AM_THROUGH_FLOAT_1(tanpi)
AM_THROUGH_FLOAT_1(trunc)
#undef AM_THROUGH_FLOAT_1

#define AM_THROUGH_FLOAT_2(NAME) \
  AM_INLINE half NAME(half x, half y) { return half(NAME(float(x), float(y))); }
AM_THROUGH_FLOAT_2(atan2)
AM_THROUGH_FLOAT_2(divide)
AM_THROUGH_FLOAT_2(fdim)
AM_THROUGH_FLOAT_2(fmod)
AM_THROUGH_FLOAT_2(pow)
AM_THROUGH_FLOAT_2(powr)
#undef AM_THROUGH_FLOAT_2

AM_INLINE half fract(half x) {
  half rest = half(fract(float(x)));
  return rest == half(1.0f) ? half(0x1.ffcp-1f) : rest;
}

AM_INLINE int ilogb(half x) { return ilogb(float(x)); }
AM_INLINE half ldexp(half x, int k) { return half(ldexp(float(x), k)); }
AM_INLINE half frexp(half x, int& exponent) { return half(frexp(float(x), exponent)); }

AM_INLINE half modf(half x, half& whole) {
  float part;
  float rest = modf(float(x), part);
  whole = half(part);
  return half(rest);
}

AM_INLINE half sincos(half x, half& cosine) {
  float c;
  float s = sincos(float(x), c);
  cosine = half(c);
  return half(s);
}

// The product of two halves is exact in float. The sum is rounded to odd: where it is not exact its
// last bit is set, so that it cannot look like a tie when it is rounded to half.
AM_INLINE half fma(half a, half b, half c) {
  float product = float(a) * float(b);
  float addend = float(c);
  float sum = product + addend;
  float second = sum - product;
  float error = (product - (sum - second)) + (addend - second);
  uint bits = bits_of(sum);
  bool toward_zero = (error < 0.0f) == (sum > 0.0f);
  uint odd = (toward_zero ? bits - 1 : bits) | 1u;
  bool inexact = error != 0.0f && fabs(sum) < infinity;
  return half(inexact ? float_of(odd) : sum);
}

}  // namespace am_math

#pragma float_control(pop)

#endif
