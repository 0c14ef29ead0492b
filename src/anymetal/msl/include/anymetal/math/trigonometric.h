// sin, cos, tan, sincos, and sinpi, cospi, tanpi.
//
// An angle is taken apart into a whole number of quarter turns and a rest of at most an eighth of a
// turn, exactly, whatever its size: the 24 bits of a float are multiplied with those 96 bits of
// 2/pi that neither vanish in the rest nor add whole turns. There is no table in memory, so that
// loops over such code become vector code. Largest error found among every 37th float, in ulp:
// sin 1.53, cos 1.53, sinpi 0.97, cospi 0.89 (Metal allows 4), tan 0.51, tanpi 0.51 (Metal: 6).
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/math/bits.h>

#pragma float_control(precise, on, push)  // whatever the kernel's author chose

namespace am_math {

// Words of the bits of 2/pi, from weight 2^31 (all zero) down, and the one of the five starting at
// word `first` that `index` names. A choice among constants, not a load.
constexpr uint two_over_pi[8] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
template <int first>
AM_INLINE uint word_of_two_over_pi(uint index) {
  uint low = index == 0 ? two_over_pi[first] : two_over_pi[first + 1];
  uint high = index == 2 ? two_over_pi[first + 2] : two_over_pi[first + 3];
  uint word = index < 2 ? low : high;
  return index == 4 ? two_over_pi[first + 4] : word;
}

// The 32 bits that start `shift` (0 to 31) bits into the 64 bits of two words.
AM_INLINE uint window(uint high, uint low, uint shift) {
  return high << shift | low >> 1 >> (31 - shift);
}

// |x| = quarter * pi/2 + rest modulo whole turns, |rest| <= pi/4. The rest of inf and NaN is NaN.
struct reduced_angle {
  double rest;
  uint quarter;
};

AM_INLINE reduced_angle reduce_angle(float x) {
  uint bits = bits_of(x) & ~sign_bit;
  ulong mantissa = (bits & 0x7fffffu) | 0x800000u;
  uint start = (bits >> 23) - 120;  // first bit of 2/pi that counts: 6 for 1/2, at most 134
  uint index = start >> 5, shift = start & 31;
  uint a = word_of_two_over_pi<0>(index), b = word_of_two_over_pi<1>(index);
  uint c = word_of_two_over_pi<2>(index), d = word_of_two_over_pi<3>(index);
  ulong turns = mantissa * window(a, b, shift) << 32;  // in units of 2^-64 of a whole turn
  turns += mantissa * window(b, c, shift);
  turns += mantissa * window(c, d, shift) >> 32;
  ulong quarter = (turns + (1ul << 61)) >> 62;
  double rest = double(long(turns - (quarter << 62))) * (0x1.921fb54442d18p0 * 0x1p-62);
  float magnitude = fabs(x);
  bool small = magnitude < 0.75f;
  return {small ? double(magnitude) : rest + double(x - x), small ? 0u : uint(quarter)};
}

// Sine and cosine of |r| <= pi/4, relative error of the polynomials 2^-28 and 2^-33.
AM_INLINE float sine_of_rest(float r) {
  float z = r * r;
  return r + r * z * polynomial(z, -0x1.555546p-3f, 0x1.11077cp-7f, -0x1.9955aap-13f);
}
AM_INLINE float cosine_of_rest(float r) {
  float z = r * r;
  return 1.0f + z * polynomial(z, -0.5f, 0x1.55554ap-5f, -0x1.6c0c28p-10f, 0x1.99e80ep-16f);
}

// sin(quarter * pi/2 + r), sign_of_x flipping the result.
AM_INLINE float sine_in_quarter(float r, uint quarter, uint sign_of_x) {
  float magnitude = quarter & 1 ? cosine_of_rest(r) : sine_of_rest(r);
  return float_of(bits_of(magnitude) ^ (quarter << 30 & sign_bit) ^ sign_of_x);
}

AM_INLINE float sin(float x) {
  reduced_angle angle = reduce_angle(x);
  return sine_in_quarter(float(angle.rest), angle.quarter, bits_of(x) & sign_bit);
}

AM_INLINE float cos(float x) {
  reduced_angle angle = reduce_angle(x);
  return sine_in_quarter(float(angle.rest), angle.quarter + 1, 0);
}

AM_INLINE float sincos(float x, float& cosine) {
  cosine = cos(x);
  return sin(x);
}

// tan(quarter * pi/2 + r) in double, with the sign of x on top.
AM_INLINE float tangent_in_quarter(double r, uint quarter, float x) {
  double z = r * r;
  double s = polynomial(z, -0x1.5555554cb2585p-3, 0x1.11110890b214dp-7, -0x1.a00f990e2bc30p-13,
                        0x1.6cd73b20baebdp-19);
  double c = polynomial(z, -0.5, 0x1.5555554ed2d8bp-5, -0x1.6c16b822e058bp-10,
                        0x1.a010da0a26ae4p-16, -0x1.241d9ea482eadp-22);
  double sine = r + r * z * s, cosine = 1.0 + z * c;
  bool swap = quarter & 1;
  float magnitude = float((swap ? -cosine : sine) / (swap ? sine : cosine));
  return float_of(bits_of(magnitude) ^ (bits_of(x) & sign_bit));
}

AM_INLINE float tan(float x) {
  reduced_angle angle = reduce_angle(x);
  return tangent_in_quarter(angle.rest, angle.quarter, x);
}

// |x| = quarter / 2 + rest, exactly. From 2^24 on every float is an even whole number: no rest.
struct reduced_turns {
  float rest;
  uint quarter;
};

AM_INLINE reduced_turns reduce_turns(float x) {
  float magnitude = fabs(x);
  double turns = double(magnitude < 0x1p24f ? magnitude : magnitude - magnitude);
  whole_double n = nearest_whole(2.0 * turns);
  return {float(turns - 0.5 * n.value), uint(n.bits)};
}

AM_INLINE float sinpi_in_quarter(float r, uint quarter) {
  float z = r * r;
  float s = polynomial(z, -0x1.777a5cp-24f, -0x1.4abbc0p2f, 0x1.46607ep1f, -0x1.2ddcecp-1f);
  float c = polynomial(z, -0x1.3bd3ccp2f, 0x1.03c1b0p2f, -0x1.55b29ap0f, 0x1.d4e420p-3f);
  float sine = r * 0x1.921fb6p1f + r * s, cosine = 1.0f + z * c;  // s starts with pi's low bits
  return float_of(bits_of(quarter & 1 ? cosine : sine) ^ (quarter << 30 & sign_bit));
}

// sinpi of a whole number is a zero with the sign of x; cospi of a whole number and a half is +0.
AM_INLINE float sinpi(float x) {
  reduced_turns turns = reduce_turns(x);
  float result = sinpi_in_quarter(turns.rest, turns.quarter);
  return result == 0.0f ? copysign(0.0f, x) : float_of(bits_of(result) ^ (bits_of(x) & sign_bit));
}

AM_INLINE float cospi(float x) {
  reduced_turns turns = reduce_turns(x);
  return sinpi_in_quarter(turns.rest, turns.quarter + 1) + 0.0f;
}

// At a whole number and a half, where the tangent jumps, the infinity below it.
AM_INLINE float tanpi(float x) {
  reduced_turns turns = reduce_turns(x);
  float result = tangent_in_quarter(double(turns.rest) * 0x1.921fb54442d18p1, turns.quarter, x);
  return fabs(result) == infinity ? -result : result;
}

}  // namespace am_math

#pragma float_control(pop)

#endif
