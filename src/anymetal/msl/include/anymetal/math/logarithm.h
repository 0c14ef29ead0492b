// log, log2, log10 in float, and a logarithm of doubles that other functions need.
//
// x = 2^e * (1 + f), 1 + f between sqrt(1/2) and sqrt(2); log(1 + f) = f - f^2/2 + f^3 P(f).
// Largest error found among every 37th float, in ulp: log 0.85, log2 1.02, log10 0.91 (Metal: 4).
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/math/bits.h>

#pragma float_control(precise, on, push)  // whatever the kernel's author chose

namespace am_math {

// f and e above, and small = -f^2/2 + f^3 P(f): what a logarithm adds to f.
struct logarithm_parts {
  float e, f, small;
};

AM_INLINE logarithm_parts take_logarithm_apart(float x) {
  bool denormal = x < 0x1p-126f;
  uint bits = bits_of(denormal ? x * 0x1p25f : x);
  int e = int(bits - bits_of(0x1.6a09e6p-1f)) >> 23;
  float f = float_of(bits - (uint(e) << 23)) - 1.0f;
  float p =
      polynomial(f, 0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a476p-3f, -0x1.555c46p-3f,
                 0x1.233baap-3f, -0x1.fc28dcp-4f, 0x1.e6bf98p-4f, -0x1.ddfea4p-4f, 0x1.146e30p-4f);
  float square = f * f;
  return {float(e - (denormal ? 25 : 0)), f, f * square * p - 0.5f * square};
}

// Takes care of other x: -inf for zero, NaN below it, and inf and NaN as they are.
AM_INLINE float logarithm_or_special(float x, float result) {
  float special = x == 0.0f ? -infinity : x < 0.0f ? not_a_number : x;
  return x > 0.0f && x < infinity ? result : special;
}

AM_INLINE float log(float x) {
  logarithm_parts p = take_logarithm_apart(x);
  float low = p.e * -0x1.bd0106p-13f + p.small;  // ln 2 = 0x1.63p-1 - 0x1.bd0106p-13
  return logarithm_or_special(x, p.e * 0x1.63p-1f + (p.f + low));
}

AM_INLINE float log2(float x) {
  logarithm_parts p = take_logarithm_apart(x);
  // log2(e) = 1.4375 + 0x1.547652p-8; f * 1.4375 is exact but for the last bits of f.
  float low = (p.f + p.small) * 0x1.547652p-8f + p.small * 1.4375f;
  return logarithm_or_special(x, p.e + (p.f * 1.4375f + low));
}

AM_INLINE float log10(float x) {
  logarithm_parts p = take_logarithm_apart(x);
  // log10(e) = 0.4375 - 0x1.a42756p-9, log10(2) = 0x1.344p-2 + 0x1.3509f8p-18
  float low = (p.f + p.small) * -0x1.a42756p-9f + (p.small * 0.4375f + p.e * 0x1.3509f8p-18f);
  return logarithm_or_special(x, p.e * 0x1.344p-2f + (p.f * 0.4375f + low));
}

// Natural logarithm of a positive, finite, normal double x = 2^e * m, to 2^-44 of its value:
// log m = 2 atanh((m - 1) / (m + 1)).
AM_INLINE double log_of_double(double x) {
  ulong bits = bits_of(x);
  long e = long(bits - bits_of(0x1.6a09e667f3bcdp-1)) >> 52;
  double m = double_of(bits - (ulong(e) << 52));
  double s = (m - 1.0) / (m + 1.0);
  double z = s * s;
  double p = polynomial(z, 0x1.555555561e676p-1, 0x1.999996a8e4b4dp-2, 0x1.2494121aa27d8p-2,
                        0x1.c62b055d23c93p-3, 0x1.91166f9974dabp-3);
  return double(int(e)) * 0x1.62e42fefa39efp-1 + (2.0 * s + s * z * p);
}

}  // namespace am_math

#pragma float_control(pop)

#endif
