// sinh, cosh, tanh in float; asinh, acosh, atanh in double.
//
// Largest error found among every 37th float, in ulp: sinh 1.62, cosh 1.45 (Metal allows 4),
// tanh 1.31 (5), asinh 0.51, acosh 0.51 (4), atanh 0.51 (5).
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/math/exponential.h>
#include <anymetal/math/logarithm.h>

#pragma float_control(precise, on, push)  // whatever the kernel's author chose

namespace am_math {

// Below 1 a polynomial, because e^x and e^-x would cancel; above, from h = e^|x| / 2, which does
// not overflow before the result does.
AM_INLINE float sinh(float x) {
  float a = fabs(x), z = x * x;
  float h = exp_scaled(a, -1);
  float p = polynomial(z, 0x1.555556p-3f, 0x1.1110e2p-7f, 0x1.a02156p-13f, 0x1.75a6f6p-19f);
  float small = a + a * z * p;
  return copysign(a < 1.0f ? small : h - 0.25f / h, x);
}

AM_INLINE float cosh(float x) {
  float h = exp_scaled(fabs(x), -1);
  return h + 0.25f / h;
}

// Below 0.6 a polynomial; above, 1 - 2 / (e^(2|x|) + 1).
AM_INLINE float tanh(float x) {
  float a = fabs(x), z = x * x;
  float p = polynomial(z, -0x1.555554p-2f, 0x1.111086p-3f, -0x1.b9f580p-5f, 0x1.63de6cp-6f,
                       -0x1.0db2ccp-7f, 0x1.1fc44ap-9f);
  float small = a + a * z * p;
  return copysign(a < 0.6f ? small : 1.0f - 2.0f / (exp(2.0f * a) + 1.0f), x);
}

// Near zero the logarithm would be taken too close to 1; three terms of the series are enough.
constexpr double series_below = 0x1p-7;

AM_INLINE float asinh(float x) {
  double a = double(fabs(x)), z = a * a;
  double series = a + a * z * (z * 0x1.3333333333333p-4 - 0x1.5555555555555p-3);
  double large = log_of_double(a + __builtin_elementwise_sqrt(z + 1.0));
  float result = copysign(float(a < series_below ? series : large), x);
  return fabs(x) < infinity ? result : x;
}

// NaN below 1.
AM_INLINE float acosh(float x) {
  double a = double(x);
  float result = float(log_of_double(a + __builtin_elementwise_sqrt(a * a - 1.0)));
  result = x < infinity ? result : x;
  return x < 1.0f ? not_a_number : result;
}

// Infinite at -1 and 1, NaN beyond.
AM_INLINE float atanh(float x) {
  double a = double(fabs(x)), z = a * a;
  double series = a + a * z * (z * 0x1.999999999999ap-3 + 0x1.5555555555555p-2);
  double large = 0.5 * log_of_double((1.0 + a) / (1.0 - a));
  float result = copysign(float(a < series_below ? series : large), x);
  result = a == 1.0 ? copysign(infinity, x) : result;
  return a <= 1.0 ? result : not_a_number;
}

}  // namespace am_math

#pragma float_control(pop)

#endif
