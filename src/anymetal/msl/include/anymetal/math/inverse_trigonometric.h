// asin, acos, atan, atan2, in double: the polynomials are good to 2^-33, and a quotient of floats
// can neither overflow nor lose bits.
//
// Largest error found among every 37th float (atan2: 40 million pairs), in ulp: asin 0.51, acos
// 0.51 (Metal allows 4), atan 0.51 (5), atan2 0.51 (6).
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/math/bits.h>

#pragma float_control(precise, on, push)  // whatever the kernel's author chose

namespace am_math {

constexpr double half_pi = 0x1.921fb54442d18p0;

// asin s, given s and z = s^2 <= 1/4.
AM_INLINE double arc_sine_of_small(double s, double z) {
  return s + s * z *
                 polynomial(z, 0x1.5555560916ce2p-3, 0x1.3332a808786ddp-4, 0x1.6ddb26d39e69cp-5,
                            0x1.ed53878df795dp-6, 0x1.935925bc02a26p-6, 0x1.e97ada4fbca03p-8,
                            0x1.1c354d61f1ef5p-5);
}

// Above 1/2: asin x = pi/2 - 2 asin sqrt((1 - x) / 2). Above 1 the root is NaN.
AM_INLINE float asin(float x) {
  double a = double(fabs(x));
  bool large = a > 0.5;
  double z = large ? 0.5 * (1.0 - a) : a * a;
  double t = arc_sine_of_small(large ? __builtin_elementwise_sqrt(z) : a, z);
  return copysign(float(large ? half_pi - 2.0 * t : t), x);
}

AM_INLINE float acos(float x) {
  double a = double(fabs(x));
  bool large = a > 0.5;
  double z = large ? 0.5 * (1.0 - a) : a * a;
  double t = arc_sine_of_small(large ? __builtin_elementwise_sqrt(z) : a, z);
  double near_one = x > 0.0f ? 2.0 * t : 2.0 * half_pi - 2.0 * t;
  return float(large ? near_one : half_pi - (x > 0.0f ? t : -t));
}

// atan q for 0 <= q <= 1.
AM_INLINE double arc_tangent_of_small(double q) {
  double z = q * q;
  return q + q * z *
                 polynomial(z, -0x1.5555548725038p-2, 0x1.999937e83d15bp-3, -0x1.248a2c0852ccfp-3,
                            0x1.c66e422be2f92p-4, -0x1.700af1abcd7d7p-4, 0x1.2958126fa870dp-4,
                            -0x1.be95a9fe7a738p-5, 0x1.1a69ca7ff067cp-5, -0x1.0b07739105c0ap-6,
                            0x1.42d0c0ec24ce8p-8, -0x1.6ddeefcd8664cp-11);
}

AM_INLINE float atan(float x) {
  double a = double(fabs(x));
  bool large = a > 1.0;
  double t = arc_tangent_of_small(large ? 1.0 / a : a);
  return copysign(float(large ? half_pi - t : t), x);
}

// The angle of the point (x, y), from -pi to pi. Zeros and infinities as in IEEE 754: the sign of a
// zero x tells 0 from pi, two infinities make an odd multiple of pi/4.
AM_INLINE float atan2(float y, float x) {
  double ay = double(fabs(y)), ax = double(fabs(x));
  bool steep = ay > ax;
  double small = steep ? ax : ay, large = steep ? ay : ax;
  double q = small == large ? (large == 0.0 ? 0.0 : 1.0) : small / large;
  double t = arc_tangent_of_small(q);
  t = steep ? half_pi - t : t;
  t = bits_of(x) & sign_bit ? 2.0 * half_pi - t : t;
  return __builtin_isunordered(x, y) ? x + y : copysign(float(t), y);
}

}  // namespace am_math

#pragma float_control(pop)

#endif
