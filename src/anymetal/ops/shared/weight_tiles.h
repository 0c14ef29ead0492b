// Rows of activations times a matrix that is unpacked a tile at a time: y = f(x W^T + bias), and
// the gradient of x, which is the same with W as it stands.
//
// A threadgroup makes a tile of the result, `tile_columns` wide and `strip_rows` high for each of
// its simdgroups. It walks along the inner dimension: a tile of W is unpacked into threadgroup
// memory once for all simdgroups, and multiplied as 8x8 matrices.
#pragma once
#include "shared/packed.h"

constant constexpr uint strip_rows = 16;    // of the result, for one simdgroup
constant constexpr uint tile_columns = 32;  // of the result; both sides of a tile of W are 32, a
constant constexpr uint tile_depth = 32;    // chunk, along the inner dimension too
constant constexpr uint most_simdgroups = 8;
// Four floats more than a row has: the rows of an 8x8 matrix start at different banks.
constant constexpr uint row_floats = 36;

// A sum over a long row loses digits: it is made of sums over parts of the row, this long.
constant constexpr uint part_depth = 128;

// Which rows of x are read, how long they are, and where.
struct Left {
  uint rows;
  uint columns;
  long stride;
};

// Rows `from` on, 32 columns from `at` on of x into a tile, zero where there are none.
template <typename T>
inline void load_left(threadgroup float* tile, device const T* x, Left left, uint from, uint at,
                      uint simd, uint lane, uint simdgroups) {
  const bool inside = at + lane < left.columns;
  for (uint row = simd; row < simdgroups * strip_rows; row += simdgroups) {
    float value = 0.0f;
    if (inside && from + row < left.rows) value = float(x[(from + row) * left.stride + at + lane]);
    tile[row * row_floats + lane] = value;
  }
}

// A matrix W has `rows`, `columns` and a function `load` that unpacks a chunk of 32 columns, from
// `at` on, of 32 rows, from `from` on, into a tile: zeros past the last row. `transposed`: the
// result's columns are rows of W, else they are its columns.
template <typename T, bool transposed, typename Matrix>
inline void multiply_tiles(device const T* x, Matrix weights, device const T* bias, device T* y,
                           constant Numbers& numbers, threadgroup float* left_tile,
                           threadgroup float* right_tile, uint2 group, uint simd, uint lane,
                           uint simdgroups) {
  const uint inner = transposed ? weights.columns : weights.rows;
  const uint columns = transposed ? weights.rows : weights.columns;
  const Left left = {numbers.count, inner, numbers.stride};
  const uint first_row = group.y * simdgroups * strip_rows;
  const uint first_column = group.x * tile_columns;
  threadgroup float* strip = left_tile + simd * strip_rows * row_floats;

  simdgroup_float8x8 totals[2][4];
  simdgroup_float8x8 sums[2][4];
#pragma unroll
  for (uint r = 0; r < 2; ++r) {
#pragma unroll
    for (uint c = 0; c < 4; ++c) {
      totals[r][c] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      sums[r][c] = totals[r][c];
    }
  }
  for (uint at = 0; at < inner; at += tile_depth) {
    load_left(left_tile, x, left, first_row, at, simd, lane, simdgroups);
    weights.load(right_tile, transposed ? first_column : at, transposed ? at : first_column, simd,
                 lane, simdgroups);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < tile_depth; k += 8) {
      simdgroup_float8x8 a[2];
      simdgroup_float8x8 b[4];
#pragma unroll
      for (uint r = 0; r < 2; ++r) simdgroup_load(a[r], strip + r * 8 * row_floats + k, row_floats);
#pragma unroll
      for (uint c = 0; c < 4; ++c) {
        threadgroup const float* from =
            transposed ? right_tile + c * 8 * row_floats + k : right_tile + k * row_floats + c * 8;
        simdgroup_load(b[c], from, row_floats, ulong2(0, 0), transposed);
      }
#pragma unroll
      for (uint r = 0; r < 2; ++r) {
#pragma unroll
        for (uint c = 0; c < 4; ++c) {
          simdgroup_multiply_accumulate(sums[r][c], a[r], b[c], sums[r][c]);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  // before the next tiles are written
    if ((at + tile_depth) % part_depth == 0 || at + tile_depth >= inner) {
#pragma unroll
      for (uint r = 0; r < 2; ++r) {
#pragma unroll
        for (uint c = 0; c < 4; ++c) {
          totals[r][c].thread_elements() += sums[r][c].thread_elements();
          sums[r][c] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
      }
    }
  }

  // The strip of x is no longer needed: the result goes through it, for its edges and its bias.
#pragma unroll
  for (uint r = 0; r < 2; ++r) {
#pragma unroll
    for (uint c = 0; c < 4; ++c) {
      simdgroup_store(totals[r][c], strip + r * 8 * row_floats + c * 8, row_floats);
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const uint column = first_column + lane;
  if (column >= columns) return;
  const float add = numbers.has_bias ? float(bias[column]) : 0.0f;
  for (uint r = 0; r < strip_rows; ++r) {
    const uint row = first_row + simd * strip_rows + r;
    if (row < left.rows) {
      y[row * columns + column] =
          T(activated(numbers.activation, strip[r * row_floats + lane] + add));
    }
  }
}
