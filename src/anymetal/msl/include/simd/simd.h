// The types and functions of <metal_stdlib> under the names that host code uses: simd::float4,
// vector_float4, simd_float4, matrix_float4x4.
#pragma once
#include <anymetal/macros.h>

#include <metal_stdlib>
#ifndef ANYMETAL_MACROS_ONLY

namespace simd {
using namespace metal;
}

#define AM_SIMD_NAMES(T)                  \
  typedef metal::vec<T, 2> simd_##T##2;   \
  typedef metal::vec<T, 3> simd_##T##3;   \
  typedef metal::vec<T, 4> simd_##T##4;   \
  typedef metal::vec<T, 2> vector_##T##2; \
  typedef metal::vec<T, 3> vector_##T##3; \
  typedef metal::vec<T, 4> vector_##T##4;
AM_EACH_INTEGER(AM_SIMD_NAMES)
AM_SIMD_NAMES(half)
AM_SIMD_NAMES(float)
#undef AM_SIMD_NAMES

#define AM_SIMD_MATRIX_NAMES(T, C)                  \
  typedef metal::matrix<T, C, 2> matrix_##T##C##x2; \
  typedef metal::matrix<T, C, 3> matrix_##T##C##x3; \
  typedef metal::matrix<T, C, 4> matrix_##T##C##x4; \
  typedef metal::matrix<T, C, 2> simd_##T##C##x2;   \
  typedef metal::matrix<T, C, 3> simd_##T##C##x3;   \
  typedef metal::matrix<T, C, 4> simd_##T##C##x4;
AM_SIMD_MATRIX_NAMES(float, 2)
AM_SIMD_MATRIX_NAMES(float, 3)
AM_SIMD_MATRIX_NAMES(float, 4)
AM_SIMD_MATRIX_NAMES(half, 2)
AM_SIMD_MATRIX_NAMES(half, 3)
AM_SIMD_MATRIX_NAMES(half, 4)
#undef AM_SIMD_MATRIX_NAMES

#endif
