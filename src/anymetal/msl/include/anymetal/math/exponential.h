// exp, exp2, exp10: 2^n times a polynomial of what is left, in float throughout.
//
// The scale 2^n is applied so that results from the largest float down to the smallest denormal are
// rounded once. Largest error found among every 37th float, in ulp: exp 1.02, exp2 0.83, exp10 0.91
// (Metal allows 4).
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/math/bits.h>

#pragma float_control(precise, on, push)  // whatever the kernel's author chose

namespace am_math {

// x * 2^n for x in [0.5, 2) and n from -253 to 253. The engines make arithmetic of it
// (passes/lower/powers.py), or an instruction for vectors.
float scale(float x, int n) __asm__("llvm.ldexp.f32.i32");

// e^x * 2^shift, |shift| <= 1.
AM_INLINE float exp_scaled(float x, int shift) {
  x = clamp_keep_nan(x, -106.0f, 91.0f);
  whole_float n = nearest_whole(x, 0x1.715476p0f);
  float r = x - n.value * 0x1.62ep-1f;  // ln 2 in two parts, the first of 12 bits
  r = r - n.value * 0x1.0bfbe8p-15f;
  float q = polynomial(r, 0.5f, 0x1.55548ep-3f, 0x1.5554d2p-5f, 0x1.123c22p-7f, 0x1.6d662ap-10f);
  return scale(1.0f + (r + r * r * q), n.bits + shift);
}

AM_INLINE float exp(float x) { return exp_scaled(x, 0); }

AM_INLINE float exp2(float x) {
  x = clamp_keep_nan(x, -152.0f, 130.0f);
  whole_float n = nearest_whole(x);
  float r = x - n.value;
  float q = polynomial(r, 0x1.62e430p-1f, 0x1.ebfbe0p-3f, 0x1.c6af78p-5f, 0x1.3b2a3ap-7f,
                       0x1.5f0a7ap-10f, 0x1.443448p-13f);
  return scale(1.0f + r * q, n.bits);
}

AM_INLINE float exp10(float x) {
  x = clamp_keep_nan(x, -46.0f, 39.0f);
  whole_float n = nearest_whole(x, 0x1.a934f0p1f);
  float r = x - n.value * 0x1.344p-2f;  // log10 2 in two parts, the first of 11 bits
  r = r - n.value * 0x1.3509f8p-18f;
  float q = polynomial(r, 0x1.26bb1cp1f, 0x1.53524cp1f, 0x1.046f9cp1f, 0x1.2bd736p0f,
                       0x1.156a78p-1f, 0x1.a947cap-3f);
  return scale(1.0f + r * q, n.bits);
}

// 2^x rounded to float, from a double. The scaling is exact, so the conversion rounds once.
AM_INLINE float exp2_of_double(double x) {
  x = clamp_keep_nan(x, -200.0, 200.0);
  whole_double n = nearest_whole(x);
  double r = x - n.value;
  double q = polynomial(r, 0x1.62e42fefa3a26p-1, 0x1.ebfbdff81b570p-3, 0x1.c6b08d703890fp-5,
                        0x1.3b2ab724e88b0p-7, 0x1.5d87fea698767p-10, 0x1.43089679ad15ap-13,
                        0x1.ffcb39b54496dp-17, 0x1.63e8234c66371p-20, 0x1.b68e458f8b8dfp-24);
  return float((1.0 + r * q) * power_of_two_double(n.bits));
}

}  // namespace am_math

#pragma float_control(pop)

#endif
