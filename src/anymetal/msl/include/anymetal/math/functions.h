// The names of Metal's math functions, by shape. Whoever needs all of them expands these lists.
#pragma once

// clang-format off
// T name(T)
#define AM_MATH_UNARY(M)                                                                          \
  M(abs) M(acos) M(acosh) M(asin) M(asinh) M(atan) M(atanh) M(ceil) M(cos) M(cosh) M(cospi)       \
  M(exp) M(exp10) M(exp2) M(fabs) M(floor) M(fract) M(log) M(log10) M(log2) M(rint) M(round)      \
  M(rsqrt) M(sin) M(sinh) M(sinpi) M(sqrt) M(tan) M(tanh) M(tanpi) M(trunc)

// T name(T, T)
#define AM_MATH_BINARY(M)                                                                         \
  M(atan2) M(copysign) M(divide) M(fdim) M(fmax) M(fmin) M(fmod) M(max) M(min) M(nextafter)       \
  M(pow) M(powr)

// T name(T, T, T)
#define AM_MATH_TERNARY(M) M(fma) M(fmax3) M(fmedian3) M(fmin3) M(max3) M(median3) M(min3)

// T name(T, T&), T name(T, int&), T name(T, int), int name(T)
#define AM_MATH_OTHER(M) M(modf) M(sincos) M(frexp) M(ldexp) M(ilogb)
// clang-format on
