// metal::fast, by the special function units. Errors stay within what Metal allows its fast
// functions.
#pragma once
#include <anymetal/inline.h>

namespace am_approximate {

AM_INLINE float exp2(float x) { return __nvvm_ex2_approx_ftz_f(x); }  // no denormals
AM_INLINE float exp(float x) { return exp2(x * 0x1.715476p0f); }
AM_INLINE float exp10(float x) { return exp2(x * 0x1.a934f0p1f); }
AM_INLINE float log2(float x) { return __nvvm_lg2_approx_f(x); }
AM_INLINE float log(float x) { return log2(x) * 0x1.62e430p-1f; }
AM_INLINE float log10(float x) { return log2(x) * 0x1.344136p-2f; }
AM_INLINE float sin(float x) { return __nvvm_sin_approx_f(x); }
AM_INLINE float cos(float x) { return __nvvm_cos_approx_f(x); }
AM_INLINE float rsqrt(float x) { return __nvvm_rsqrt_approx_f(x); }
AM_INLINE float sqrt(float x) { return __nvvm_sqrt_approx_f(x); }

// Two units in the last place over the whole range; the approximate division is 0 for large y.
AM_INLINE float divide(float x, float y) {
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(x), "f"(y));
  return quotient;
}

// Of 0 and -0 the larger or smaller, whichever comes first.
AM_INLINE float max(float x, float y) { return __nvvm_fmax_f(x, y); }
AM_INLINE float min(float x, float y) { return __nvvm_fmin_f(x, y); }
AM_INLINE float fmax(float x, float y) { return max(x, y); }
AM_INLINE float fmin(float x, float y) { return min(x, y); }

}  // namespace am_approximate

// In metal::fast, the functions above are meant by am_math.
#define AM_FAST_1(NAME)                 \
  namespace am_math = ::am_approximate; \
  AM_FUNCTION_1(float, float, NAME)
#define AM_FAST_2(NAME)                 \
  namespace am_math = ::am_approximate; \
  AM_FUNCTION_2(float, float, NAME)
