// Overloads for a scalar type and its vectors of two to four, from one scalar function in am_math.
//
// The overloads are plain functions, one for each type, as Metal's are: a scalar next to a vector is
// widened to a vector, scalars of different types are ambiguous, and of an author's template with the
// same name the plain function is preferred. R is the result's scalar type, T the arguments'.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY
#include <metal_types>

// The body of a function whose result has each component c computed by CALL(NAME, c).
#define AM_BODY_2(V, CALL, NAME) \
  {                              \
    V r;                         \
    r.x = CALL(NAME, x);         \
    r.y = CALL(NAME, y);         \
    return r;                    \
  }
#define AM_BODY_3(V, CALL, NAME) \
  {                              \
    V r;                         \
    r.x = CALL(NAME, x);         \
    r.y = CALL(NAME, y);         \
    r.z = CALL(NAME, z);         \
    return r;                    \
  }
#define AM_BODY_4(V, CALL, NAME) \
  {                              \
    V r;                         \
    r.x = CALL(NAME, x);         \
    r.y = CALL(NAME, y);         \
    r.z = CALL(NAME, z);         \
    r.w = CALL(NAME, w);         \
    return r;                    \
  }

#define AM_CALL_1(NAME, c) am_math::NAME(a.c)
#define AM_CALL_2(NAME, c) am_math::NAME(a.c, b.c)
#define AM_CALL_3(NAME, c) am_math::NAME(a.c, b.c, d.c)

#define AM_FUNCTION_1(R, T, NAME)                          \
  AM_INLINE R NAME(T a) { return am_math::NAME(a); }       \
  AM_INLINE R##2 NAME(T##2 a) AM_BODY_2(R##2, AM_CALL_1, NAME) \
  AM_INLINE R##3 NAME(T##3 a) AM_BODY_3(R##3, AM_CALL_1, NAME) \
  AM_INLINE R##4 NAME(T##4 a) AM_BODY_4(R##4, AM_CALL_1, NAME)

#define AM_FUNCTION_2(R, T, NAME)                                      \
  AM_INLINE R NAME(T a, T b) { return am_math::NAME(a, b); }           \
  AM_INLINE R##2 NAME(T##2 a, T##2 b) AM_BODY_2(R##2, AM_CALL_2, NAME) \
  AM_INLINE R##3 NAME(T##3 a, T##3 b) AM_BODY_3(R##3, AM_CALL_2, NAME) \
  AM_INLINE R##4 NAME(T##4 a, T##4 b) AM_BODY_4(R##4, AM_CALL_2, NAME)

// The last argument's scalar type is L.
#define AM_FUNCTION_3(R, T, L, NAME)                                           \
  AM_INLINE R NAME(T a, T b, L d) { return am_math::NAME(a, b, d); }           \
  AM_INLINE R##2 NAME(T##2 a, T##2 b, L##2 d) AM_BODY_2(R##2, AM_CALL_3, NAME) \
  AM_INLINE R##3 NAME(T##3 a, T##3 b, L##3 d) AM_BODY_3(R##3, AM_CALL_3, NAME) \
  AM_INLINE R##4 NAME(T##4 a, T##4 b, L##4 d) AM_BODY_4(R##4, AM_CALL_3, NAME)

// The second argument is of scalar type S, or a reference to it that takes a second result.
#define AM_FUNCTION_AND(R, T, S, NAME)                                    \
  AM_INLINE R NAME(T a, S b) { return am_math::NAME(a, b); }              \
  AM_INLINE R##2 NAME(T##2 a, S##2 b) AM_BODY_2(R##2, AM_CALL_2, NAME)    \
  AM_INLINE R##3 NAME(T##3 a, S##3 b) AM_BODY_3(R##3, AM_CALL_2, NAME)    \
  AM_INLINE R##4 NAME(T##4 a, S##4 b) AM_BODY_4(R##4, AM_CALL_2, NAME)
#define AM_FUNCTION_OUT(R, T, S, NAME)                                     \
  AM_INLINE R NAME(T a, S& b) { return am_math::NAME(a, b); }              \
  AM_INLINE R##2 NAME(T##2 a, S##2& b) AM_BODY_2(R##2, AM_CALL_2, NAME)    \
  AM_INLINE R##3 NAME(T##3 a, S##3& b) AM_BODY_3(R##3, AM_CALL_2, NAME)    \
  AM_INLINE R##4 NAME(T##4 a, S##4& b) AM_BODY_4(R##4, AM_CALL_2, NAME)

#endif
