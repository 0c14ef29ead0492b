// What the functions in this folder are made of: bits of a float, powers of two, polynomials.
//
// Everything here is scalar, without branches where a choice between two values will do, and
// without calls: LLVM turns a loop over such code into vector code. Products and sums are written
// plainly. The compiler fuses them where the machine has fused multiply-add (-ffp-contract=on), and
// wherever exactness matters the constants are short enough to make the product exact without it.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/scalar.h>

#pragma float_control(precise, on, push)  // whatever the kernel's author chose

namespace am_math {

AM_INLINE constexpr uint bits_of(float x) { return __builtin_bit_cast(uint, x); }
AM_INLINE constexpr ulong bits_of(double x) { return __builtin_bit_cast(ulong, x); }
AM_INLINE constexpr ushort bits_of(half x) { return __builtin_bit_cast(ushort, x); }
AM_INLINE constexpr float float_of(uint bits) { return __builtin_bit_cast(float, bits); }
AM_INLINE constexpr double double_of(ulong bits) { return __builtin_bit_cast(double, bits); }
AM_INLINE constexpr half half_of(ushort bits) { return __builtin_bit_cast(half, bits); }

constexpr float infinity = __builtin_inff();
constexpr float not_a_number = __builtin_nanf("");
constexpr uint sign_bit = 0x80000000u;

AM_INLINE constexpr float fabs(float x) { return float_of(bits_of(x) & ~sign_bit); }
AM_INLINE constexpr half fabs(half x) { return half_of(bits_of(x) & 0x7fff); }
AM_INLINE constexpr float copysign(float x, float y) {
  return float_of((bits_of(x) & ~sign_bit) | (bits_of(y) & sign_bit));
}
AM_INLINE constexpr half copysign(half x, half y) {
  return half_of((bits_of(x) & 0x7fff) | (bits_of(y) & 0x8000));
}

// 2^n; n from -126 to 127, and from -1022 to 1023.
AM_INLINE constexpr float power_of_two(int n) { return float_of((uint(n) + 127u) << 23); }
AM_INLINE constexpr double power_of_two_double(int n) { return double_of(ulong(n + 1023) << 52); }

// low or high where x lies beyond it; a NaN stays.
template <class Real>
AM_INLINE constexpr Real clamp_keep_nan(Real x, Real low, Real high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

// c + rest[0] * x + rest[1] * x^2 + ...
template <class Real>
AM_INLINE constexpr Real polynomial(Real, Real c) {
  return c;
}
template <class Real, class... Rest>
AM_INLINE constexpr Real polynomial(Real x, Real c, Rest... rest) {
  return polynomial(x, rest...) * x + c;
}

// The nearest whole number, ties to even, and its low bits, by adding 1.5 * 2^23 (2^52): the sum
// has no room for a fraction. |x| < 2^22 (2^51).
struct whole_float {
  float value;
  int bits;
};
AM_INLINE whole_float whole_of_shifted(float shifted) {
  return {shifted - 0x1.8p23f, int(bits_of(shifted) - bits_of(0x1.8p23f))};
}
AM_INLINE whole_float nearest_whole(float x) { return whole_of_shifted(x + 0x1.8p23f); }
// Of x * factor, in one operation where the processor has it.
AM_INLINE whole_float nearest_whole(float x, float factor) {
  return whole_of_shifted(x * factor + 0x1.8p23f);
}
struct whole_double {
  double value;
  int bits;
};
AM_INLINE whole_double nearest_whole(double x) {
  double shifted = x + 0x1.8p52;
  return {shifted - 0x1.8p52, int(uint(bits_of(shifted)))};
}

}  // namespace am_math

#pragma float_control(pop)

#endif
