// Floats of 8 bits: one byte in, a float out, and back with rounding to the nearest even.
//
// Only integer operations and additions of ordinary numbers are used: no step makes a denormal,
// which a GPU may flush, so that every device gives the same bits. They are those of torch's
// conversions.
#pragma once
#include "shared/types.h"

// 1 sign, 4 exponent and 3 mantissa bits; up to 448, no infinities, NaN is 0x7f. (torch says
// e4m3fn.)
struct E4m3 {
  static constexpr constant uint mantissa = 3;
  static constexpr constant uint bias = 7;
  static constexpr constant uint largest = 0x7e;
  static constexpr constant uint overflow = 0x7e;  // what torch gives for more than the largest
};

// 1 sign, 5 exponent and 2 mantissa bits; up to 57344, with infinities: the upper byte of a half.
struct E5m2 {
  static constexpr constant uint mantissa = 2;
  static constexpr constant uint bias = 15;
  static constexpr constant uint largest = 0x7b;
  static constexpr constant uint overflow = 0x7c;
};

template <typename F>
inline float fp8_to_float(uchar code) {
  const uint magnitude = uint(code & 0x7f) << (23 - F::mantissa);
  const float normal = as_type<float>(magnitude + ((127 - F::bias) << 23));
  // With exponent 0 there is no leading one: it is added with the smallest exponent, and taken off.
  const uint smallest = (128 - F::bias) << 23;
  const float small = as_type<float>(magnitude + smallest) - as_type<float>(smallest);
  const float finite = magnitude < (1u << 23) ? small : normal;
  const float special = as_type<float>(magnitude | 0x7f800000u);
  const float value = uint(code & 0x7f) > F::largest ? special : finite;
  return as_type<float>(as_type<uint>(value) | (uint(code & 0x80) << 24));
}

// More than the largest number becomes `F::overflow`, or with `saturated` the largest number, also
// for infinities. NaN stays NaN.
template <typename F, bool saturated>
inline uchar fp8_from_float(float x) {
  const uint bits = as_type<uint>(x);
  const uint magnitude = bits & 0x7fffffffu;
  const uint shift = 23 - F::mantissa;
  // Half a step is added, less one where the kept part is even; what is cut off decides.
  const uint up = ((1u << (shift - 1)) - 1) + ((magnitude >> shift) & 1);
  const uint normal = (magnitude + up - ((127 - F::bias) << 23)) >> shift;
  // Below the smallest exponent: the addition to a number with that step in its last bit rounds.
  const uint base = (128 - F::bias + shift) << 23;
  const uint small = as_type<uint>(as_type<float>(magnitude) + as_type<float>(base)) - base;
  const uint code = magnitude < ((128 - F::bias) << 23) ? small : normal;
  const uint finite = min(code, saturated ? F::largest : F::overflow);
  return uchar((magnitude > 0x7f800000u ? 0x7f : finite) | ((bits >> 24) & 0x80));
}
