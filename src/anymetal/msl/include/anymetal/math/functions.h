// The names of Metal's math functions, by shape. Whoever needs all of them expands these lists.
// Approximate are those that a machine may have a faster form of (anymetal/approximate.h).
#pragma once

// clang-format off
// T name(T)
#define AM_APPROXIMATE_UNARY(M)                                                                   \
  M(cos) M(exp) M(exp10) M(exp2) M(log) M(log10) M(log2) M(rsqrt) M(sin) M(sqrt)
#define AM_EXACT_UNARY(M)                                                                         \
  M(abs) M(acos) M(acosh) M(asin) M(asinh) M(atan) M(atanh) M(ceil) M(cosh) M(cospi) M(fabs)      \
  M(floor) M(fract) M(rint) M(round) M(sinh) M(sinpi) M(tan) M(tanh) M(tanpi) M(trunc)
#define AM_MATH_UNARY(M) AM_EXACT_UNARY(M) AM_APPROXIMATE_UNARY(M)

// T name(T, T)
#define AM_APPROXIMATE_BINARY(M) M(divide) M(fmax) M(fmin) M(max) M(min)
#define AM_EXACT_BINARY(M)                                                                        \
  M(atan2) M(copysign) M(fdim) M(fmod) M(nextafter) M(pow) M(powr)
#define AM_MATH_BINARY(M) AM_EXACT_BINARY(M) AM_APPROXIMATE_BINARY(M)

// T name(T, T, T)
#define AM_MATH_TERNARY(M) M(fma) M(fmax3) M(fmedian3) M(fmin3) M(max3) M(median3) M(min3)

// T name(T, T&), T name(T, int&), T name(T, int), int name(T)
#define AM_MATH_OTHER(M) M(modf) M(sincos) M(frexp) M(ldexp) M(ilogb)
// clang-format on
