// Scalar types, their names, and the conversions between them.
#pragma once
#include <anymetal/macros.h>
#ifndef ANYMETAL_MACROS_ONLY
#include <anymetal/machine.h>

typedef _Float16 half;
typedef __bf16 bfloat;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef decltype(nullptr) nullptr_t;

// How functions that take or return vectors by value are declared. C's calling convention packs the
// components in pairs, which stays visible after inlining and keeps loops over threads from being
// vectorised; this one passes each component by itself.
#ifdef __x86_64__
#define AM_VECTOR_INLINE __attribute__((regcall)) AM_INLINE
#else
#define AM_VECTOR_INLINE AM_INLINE
#endif

// Every scalar type a vector can be made of.
#define AM_EACH_INTEGER(M) M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong)
#define AM_EACH_FLOAT(M) M(half) M(bfloat) M(float)
#define AM_EACH_SCALAR(M) M(bool) AM_EACH_INTEGER(M) AM_EACH_FLOAT(M)

namespace metal {

using ::bfloat;
using ::half;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::intptr_t;
using ::nullptr_t;
using ::ptrdiff_t;
using ::size_t;
using ::uchar;
using ::uint;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::uintptr_t;
using ::ulong;
using ::ushort;

template <class T, int N>
struct vec;
template <class T, int N>
struct packed_vec;

}  // namespace metal

// half and bfloat convert to each other only when asked, and clang has no direct cast between them.
template <class From, class To>
constexpr bool am_half_to_bfloat_or_back = (__is_same(From, half) && __is_same(To, bfloat)) ||
                                           (__is_same(From, bfloat) && __is_same(To, half));
template <class From, class To>
constexpr bool am_converts = __is_convertible(From, To) || am_half_to_bfloat_or_back<From, To>;
// What Metal converts without being asked: any scalar to any other, but float to bfloat.
template <class From, class To>
constexpr bool am_converts_implicitly =
    __is_convertible(From, To) && !am_half_to_bfloat_or_back<From, To> &&
    !(__is_same(From, float) && __is_same(To, bfloat));

// Conversion of a scalar. Between half and bfloat it goes through float, which holds every value of
// both, so that the result is rounded once.
template <class T, class U>
AM_INLINE constexpr T am_convert(U value) {
  if constexpr (am_half_to_bfloat_or_back<U, T>) {
    return static_cast<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Floats in a text that is only checked (msl/check.py): 0.5_ is 0.5f where the language wants to
// know the value, and otherwise a value that nobody knows.
extern float am_unknown_float;
AM_INLINE constexpr float am_unknown(float value) {
  return __builtin_is_constant_evaluated() ? value : am_unknown_float;
}
AM_INLINE constexpr float operator""_(long double value) { return am_unknown(float(value)); }
AM_INLINE constexpr float am_unknown_inf() { return am_unknown(__builtin_inff()); }
AM_INLINE constexpr float am_unknown_nan(const char*) { return am_unknown(__builtin_nanf("")); }

// What the front end puts in place of a cast to T in the author's text.
template <class T, class U>
AM_INLINE constexpr T am_cast(U value) {
  if constexpr (am_half_to_bfloat_or_back<U, __remove_cv(T)>) {
    return am_convert<__remove_cv(T)>(value);
  } else {
    return (T)value;
  }
}

#endif
