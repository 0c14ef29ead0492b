// Overloads for a scalar type and its vectors of two to four, from one scalar function in am_math.
//
// The overloads are plain functions, one for each type, as Metal's are: a scalar next to a vector
// is widened to a vector, scalars of different types are ambiguous, and the plain function is
// preferred to an author's template of the same name.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <metal_types>

// Statements that return a V whose every component c is CALL(NAME, c).
#define AM_RETURN_2(V, CALL, NAME) \
  V r;                             \
  r.x = CALL(NAME, x);             \
  r.y = CALL(NAME, y);             \
  return r
#define AM_RETURN_3(V, CALL, NAME) \
  V r;                             \
  r.x = CALL(NAME, x);             \
  r.y = CALL(NAME, y);             \
  r.z = CALL(NAME, z);             \
  return r
#define AM_RETURN_4(V, CALL, NAME) \
  V r;                             \
  r.x = CALL(NAME, x);             \
  r.y = CALL(NAME, y);             \
  r.z = CALL(NAME, z);             \
  r.w = CALL(NAME, w);             \
  return r

#define AM_CALL_1(NAME, c) am_math::NAME(a.c)
#define AM_CALL_2(NAME, c) am_math::NAME(a.c, b.c)
#define AM_CALL_3(NAME, c) am_math::NAME(a.c, b.c, d.c)

// R name(T): R is the result's scalar type, T the argument's.
#define AM_FUNCTION_1(R, T, NAME)                                     \
  AM_INLINE R NAME(T a) { return am_math::NAME(a); }                  \
  AM_INLINE R##2 NAME(T##2 a) { AM_RETURN_2(R##2, AM_CALL_1, NAME); } \
  AM_INLINE R##3 NAME(T##3 a) { AM_RETURN_3(R##3, AM_CALL_1, NAME); } \
  AM_INLINE R##4 NAME(T##4 a) { AM_RETURN_4(R##4, AM_CALL_1, NAME); }

// R name(T, S). MODE is & where the second argument takes a second result.
#define AM_FUNCTION_OF_TWO(R, T, S, MODE, NAME)                                    \
  AM_INLINE R NAME(T a, S MODE b) { return am_math::NAME(a, b); }                  \
  AM_INLINE R##2 NAME(T##2 a, S##2 MODE b) { AM_RETURN_2(R##2, AM_CALL_2, NAME); } \
  AM_INLINE R##3 NAME(T##3 a, S##3 MODE b) { AM_RETURN_3(R##3, AM_CALL_2, NAME); } \
  AM_INLINE R##4 NAME(T##4 a, S##4 MODE b) { AM_RETURN_4(R##4, AM_CALL_2, NAME); }
#define AM_FUNCTION_2(R, T, NAME) AM_FUNCTION_OF_TWO(R, T, T, , NAME)
#define AM_FUNCTION_AND(R, T, S, NAME) AM_FUNCTION_OF_TWO(R, T, S, , NAME)
#define AM_FUNCTION_OUT(R, T, S, NAME) AM_FUNCTION_OF_TWO(R, T, S, &, NAME)

// R name(T, T, S)
#define AM_FUNCTION_3(R, T, S, NAME)                                                  \
  AM_INLINE R NAME(T a, T b, S d) { return am_math::NAME(a, b, d); }                  \
  AM_INLINE R##2 NAME(T##2 a, T##2 b, S##2 d) { AM_RETURN_2(R##2, AM_CALL_3, NAME); } \
  AM_INLINE R##3 NAME(T##3 a, T##3 b, S##3 d) { AM_RETURN_3(R##3, AM_CALL_3, NAME); } \
  AM_INLINE R##4 NAME(T##4 a, T##4 b, S##4 d) { AM_RETURN_4(R##4, AM_CALL_3, NAME); }

#endif
