// 1 / sqrt(x), correctly rounded, as anymetal/math/rounding.h has it: the hardware's estimate of 22
// bits is made one of 52 by one step of the third order. A division and a root in double take ten
// times as long, and rows wait for them.
#pragma once
#include <anymetal/inline.h>

AM_INLINE float am_reciprocal_root(float x) {
  double wide = x, estimate = __nvvm_rsqrt_approx_d(wide);
  double rest = __builtin_elementwise_fma(-wide * estimate, estimate, 1.0);
  double step = __builtin_elementwise_fma(rest, 0.375, 0.5) * (estimate * rest);
  // Of zero, infinity and negative numbers the estimate is the result, and the rest a NaN.
  return float(rest == rest ? estimate + step : estimate);
}
