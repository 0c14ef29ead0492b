// Matrices of a batch in memory, and how a threadgroup shares one: simdgroups take rows, lanes take
// columns, so that a row is one coalesced access and a number of a row is uniform in a simdgroup.
#pragma once
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

constant constexpr uint lanes = 32;

// Element (i, j) of matrix b stands at b * `matrix` + i * `row` + j * `column`.
struct Strides {
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

// Squares of columns of which the largest element was about 1; below this a norm has lost digits.
constant constexpr float negligible = 1e-30f;

// --- small matrices: a lane has a column, 32 / size matrices stand side by side in a simdgroup
// ----

// What the lane of column j of the same matrix has; the matrix begins at lane `base`.
template <uint size, typename T>
inline T of_column(T value, uint base, uint j) {
  if constexpr (size < lanes) return simd_shuffle(value, ushort(base + j));
  return simd_broadcast(value, ushort(j));
}

// A lane's place among the small matrices of a simdgroup.
template <uint size>
struct Place {
  uint lane;
  uint group;  // of the 32 / size matrices

  uint own() const { return lane % size; }  // column
  uint base() const { return lane / size * size; }
  uint matrix() const { return group * (lanes / size) + lane / size; }
  // Whether there are as many matrices as the group can take.
  bool is_full(long matrices) const { return (group + 1) * (lanes / size) <= matrices; }
};

// How small matrices of `size` rows and columns follow each other in memory.
enum Order : long { in_some_way, by_rows, by_columns };

// Columns of a group's matrices go to a tile with rows of 32; rows past the matrix are not written.
template <uint size>
inline void load_columns(threadgroup float* tile, device const float* a, constant Strides& layout,
                         long order, uint rows, bool there, Place<size> place) {
  device const float* first = a + ulong(place.group) * (lanes * size);
  threadgroup float* column = tile + place.lane;
  if (order == by_rows) {
    device const float* from = first + place.lane / size * (size * size) + place.own();
    for (uint i = 0; i < size; ++i) column[i * lanes] = from[i * size];
  } else if (order == by_columns) {
    simdgroup_float8x8 block;
    for (uint c = 0; c < lanes; c += 8)
      for (uint r = 0; r < size; r += 8) {
        simdgroup_load(block, first + c * size + r, size, ulong2(0), true);
        simdgroup_store(block, tile + r * lanes + c, lanes);
      }
  } else {
    for (uint i = 0; i < rows; ++i)
      column[i * lanes] = there ? a[layout.at(place.matrix(), i, place.own())] : 0.0f;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// The other way round.
template <uint size>
inline void store_columns(threadgroup const float* tile, device float* a, constant Strides& layout,
                          long order, uint rows, bool there, Place<size> place) {
  simdgroup_barrier(mem_flags::mem_threadgroup);
  device float* first = a + ulong(place.group) * (lanes * size);
  threadgroup const float* column = tile + place.lane;
  if (order == by_rows) {
    device float* to = first + place.lane / size * (size * size) + place.own();
    for (uint i = 0; i < size; ++i) to[i * size] = column[i * lanes];
  } else if (order == by_columns) {
    simdgroup_float8x8 block;
    for (uint c = 0; c < lanes; c += 8)
      for (uint r = 0; r < size; r += 8) {
        simdgroup_load(block, tile + r * lanes + c, lanes, ulong2(0), true);
        simdgroup_store(block, first + c * size + r, size);
      }
  } else if (there) {
    for (uint i = 0; i < rows; ++i)
      a[layout.at(place.matrix(), i, place.own())] = column[i * lanes];
  }
}
