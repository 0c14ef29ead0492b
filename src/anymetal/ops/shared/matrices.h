// Matrices of a batch in memory, and how a threadgroup shares one: simdgroups take rows, lanes take
// columns, so that a row is one coalesced access and a number of a row is uniform in a simdgroup.
#pragma once
#include <metal_stdlib>
using namespace metal;

constant constexpr uint lanes = 32;

// Element (i, j) of matrix b stands at b * `matrix` + i * `row` + j * `column`.
struct Layout {
  long matrix;
  long row;
  long column;

  long at(uint b, uint i, uint j) constant const { return b * matrix + i * row + j * column; }
};

// The threads that share a matrix.
struct Crew {
  uint lane;
  uint simd;        // of this simdgroup in the threadgroup
  uint simdgroups;  // of the threadgroup
};

// 2^k with value * 2^k in [1, 2), by the bits of the exponent: exact. 1 for zero and what is not
// finite.
inline float power_of_two_scale(float largest) {
  const int exponent = int(as_type<uint>(largest) >> 23 & 255);
  if (exponent == 255 || largest == 0.0f) return 1.0f;
  // At most 2^126, so that its inverse is no denormal.
  return as_type<float>(uint(clamp(254 - exponent, 1, 253)) << 23);
}

// What the lane of column j of the same matrix has. Packed matrices stand side by side in a
// simdgroup, and begin at lane `base`.
template <bool packed>
inline float of_column(float value, uint base, uint j) {
  if constexpr (packed) return simd_shuffle(value, ushort(base + j));
  return simd_broadcast(value, ushort(j));
}
