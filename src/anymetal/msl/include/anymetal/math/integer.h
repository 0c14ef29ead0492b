// Integer functions on one number of any integer type. What Metal leaves undefined does not trap.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/math/ordering.h>

namespace am_math {

template <class T>
constexpr uint width = sizeof(T) * 8;
template <class T>
constexpr bool is_signed = T(-1) < T(0);

template <class T>
struct integer_types;
#define AM_INTEGER_TYPES(T, UNSIGNED, WIDE) \
  template <>                               \
  struct integer_types<T> {                 \
    typedef UNSIGNED same_size;             \
    typedef WIDE wide;                      \
  };
AM_INTEGER_TYPES(char, uchar, int)
AM_INTEGER_TYPES(uchar, uchar, uint)
AM_INTEGER_TYPES(short, ushort, int)
AM_INTEGER_TYPES(ushort, ushort, uint)
AM_INTEGER_TYPES(int, uint, long)
AM_INTEGER_TYPES(uint, uint, ulong)
AM_INTEGER_TYPES(long, ulong, __int128)
AM_INTEGER_TYPES(ulong, ulong, unsigned __int128)
#undef AM_INTEGER_TYPES

// The unsigned type of T's size, and one with T's sign that holds any a * b + c.
template <class T>
using to_unsigned = typename integer_types<T>::same_size;
template <class T>
using to_wide = typename integer_types<T>::wide;

// |x|; the most negative value, which has no positive counterpart, stays.
template <class T>
AM_INLINE constexpr T abs(T x) {
  typedef to_unsigned<T> U;
  return x < T(0) ? T(U(0) - U(x)) : x;
}

// |x - y|, which always fits the unsigned type.
template <class T>
AM_INLINE constexpr to_unsigned<T> absdiff(T x, T y) {
  typedef to_unsigned<T> U;
  return x > y ? U(U(x) - U(y)) : U(U(y) - U(x));
}

// The nearest value of T.
template <class T>
AM_INLINE constexpr T to_nearest(to_wide<T> x) {
  constexpr T lowest = is_signed<T> ? T(to_unsigned<T>(1) << (width<T> - 1)) : T(0);
  constexpr T highest = T(~lowest);
  return x < to_wide<T>(lowest) ? lowest : x > to_wide<T>(highest) ? highest : T(x);
}

template <class T>
AM_INLINE constexpr T addsat(T x, T y) {
  return __builtin_elementwise_add_sat(x, y);
}
template <class T>
AM_INLINE constexpr T subsat(T x, T y) {
  return __builtin_elementwise_sub_sat(x, y);
}
template <class T>
AM_INLINE constexpr T madsat(T a, T b, T c) {
  typedef to_wide<T> W;
  return to_nearest<T>(W(W(a) * W(b) + W(c)));
}

// The high half of the product, and that plus c (which wraps around).
template <class T>
AM_INLINE constexpr T mulhi(T x, T y) {
  typedef to_wide<T> W;
  return T(W(x) * W(y) >> width<T>);
}
template <class T>
AM_INLINE constexpr T madhi(T a, T b, T c) {
  typedef to_unsigned<T> U;
  return T(U(mulhi(a, b)) + U(c));
}

// (x + y) >> 1 and (x + y + 1) >> 1 of the sum that does not wrap around.
template <class T>
AM_INLINE constexpr T hadd(T x, T y) {
  return T((x & y) + ((x ^ y) >> 1));
}
template <class T>
AM_INLINE constexpr T rhadd(T x, T y) {
  return T((x | y) - ((x ^ y) >> 1));
}

// Zero has as many leading and trailing zeros as the type has bits.
template <class T>
AM_INLINE constexpr T clz(T x) {
  return T(__builtin_clzg(to_unsigned<T>(x), int(width<T>)));
}
template <class T>
AM_INLINE constexpr T ctz(T x) {
  return T(__builtin_ctzg(to_unsigned<T>(x), int(width<T>)));
}
template <class T>
AM_INLINE constexpr T popcount(T x) {
  return T(__builtin_popcountg(to_unsigned<T>(x)));
}
template <class T>
AM_INLINE constexpr T reverse_bits(T x) {
  return T(__builtin_elementwise_bitreverse(to_unsigned<T>(x)));
}

// The bits move left by `count` modulo the width, those shifted out come back on the right.
template <class T>
AM_INLINE constexpr T rotate(T x, T count) {
  typedef to_unsigned<T> U;
  uint left = uint(count) & (width<T> - 1), right = (width<T> - left) & (width<T> - 1);
  return T(U(U(x) << left) | U(U(x) >> right));
}

// A run of ones from bit 0; a count beyond the width, which Metal leaves undefined, gives all.
template <class T>
AM_INLINE constexpr to_unsigned<T> low_ones(uint count) {
  typedef to_unsigned<T> U;
  return count >= width<T> ? U(~U(0)) : U((U(1) << count) - U(1));
}

// Bits offset to offset + bits - 1; of a signed type, the highest of them is the sign.
template <class T>
AM_INLINE constexpr T extract_bits(T x, uint offset, uint bits) {
  typedef to_unsigned<T> U;
  U field = U(U(x) >> (offset & (width<T> - 1))) & low_ones<T>(bits);
  U sign = is_signed<T> && bits != 0 ? U(U(1) << ((bits - 1) & (width<T> - 1))) : U(0);
  return T(U(U(field ^ sign) - sign));
}

// base, with bits offset to offset + bits - 1 taken from the low bits of insert.
template <class T>
AM_INLINE constexpr T insert_bits(T base, T insert, uint offset, uint bits) {
  typedef to_unsigned<T> U;
  uint shift = offset & (width<T> - 1);
  U mask = U(low_ones<T>(bits) << shift);
  return T((U(base) & U(~mask)) | (U(U(insert) << shift) & mask));
}

// Products of the low 24 bits, signed or not; the low 32 bits of the product, and that plus z.
AM_INLINE constexpr uint mul24(uint x, uint y) { return (x & 0xffffffu) * (y & 0xffffffu); }
AM_INLINE constexpr int mul24(int x, int y) {
  uint a = uint(int(uint(x) << 8) >> 8), b = uint(int(uint(y) << 8) >> 8);
  return int(a * b);
}
template <class T>
AM_INLINE constexpr T mad24(T x, T y, T z) {
  return T(uint(mul24(x, y)) + uint(z));
}

}  // namespace am_math

#endif
