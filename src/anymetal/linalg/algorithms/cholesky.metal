// A = L L' from the lower triangle of A, in panels of columns.
#include "shared/matrices.h"

// A panel: some columns of a matrix, from the diagonal down.
struct Panel {
  long start;   // its first column in the matrix
  long count;   // its columns
  long rows;    // its rows
  long height;  // rows below the diagonal block that a threadgroup takes
  Layout a;
  Layout l;
};

// A threadgroup factors the diagonal block, each one the same, and solves for its own rows below.
// A is read and L written, so no threadgroup sees another's results. Rows of a tile are a multiple
// of 32 long; its diagonal block is kept symmetric, so that a column is read as a row.
template <uint chunks>
[[kernel]] void cholesky_panel(device const float* a [[buffer(0)]], device float* l [[buffer(1)]],
                               device int* info [[buffer(2)]], constant Panel& panel [[buffer(3)]],
                               uint2 group [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd [[simdgroup_index_in_threadgroup]],
                               uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float tile[chunks == 1 ? 128 * lanes : 80 * 3 * lanes];
  const uint count = uint(panel.count);
  const uint width = (count + lanes - 1) / lanes * lanes;
  const uint first = count + group.x * uint(panel.height);  // of the rows below
  const uint below = first < panel.rows ? min(uint(panel.rows) - first, uint(panel.height)) : 0;
  const uint rows = count + below;

  for (uint i = simd; i < rows; i += simdgroups) {
    for (uint c = lane; c < width; c += lanes) {
      const uint row = i < count ? max(i, c) : first + i - count;
      const uint column = i < count ? min(i, c) : c;
      tile[i * width + c] = c < count ? a[panel.a.at(group.y, row, column)] : 0.0f;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // Columns are scaled when they are written: what is kept of column j is L times its diagonal.
  int failed = 0;
  for (uint j = 0; j < count; ++j) {
    const float pivot = tile[j * width + j];
    if (!(pivot > 0.0f) && failed == 0) failed = int(panel.start + j) + 1;  // NaN fails too
    const float inverse = pivot > 0.0f ? 1.0f / pivot : 0.0f;
    float row[chunks];
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      const uint c = k * lanes + lane;
      row[k] = c > j && c < width ? tile[j * width + min(c, width - 1)] : 0.0f;
    }
    const uint next = j + 1;
    for (uint i = next + (simd + simdgroups - next % simdgroups) % simdgroups; i < rows;
         i += simdgroups) {
      const float own = tile[i * width + j / lanes * lanes + lane];
      const float multiplier = simd_broadcast(own, ushort(j % lanes)) * inverse;
#pragma unroll
      for (uint k = 0; k < chunks; ++k)
        if (k * lanes < width) tile[i * width + k * lanes + lane] -= multiplier * row[k];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  for (uint c = lane; c < count; c += lanes) {
    const float pivot = tile[c * width + c];
    const float root = pivot > 0.0f ? precise::sqrt(pivot) : pivot;
    for (uint i = simd; i < rows; i += simdgroups) {
      if (i < count && group.x > 0) continue;
      const uint row = i < count ? i : first + i - count;
      const float value = tile[i * width + c] / root;
      l[panel.l.at(group.y, row, c)] = i >= count || c < i ? value : (c == i ? root : 0.0f);
    }
  }
  if (group.x == 0 && simd == 0 && lane == 0 &&
      (panel.start == 0 || (failed > 0 && info[group.y] == 0)))
    info[group.y] = failed;
}

template [[host_name("cholesky_rows")]] [[kernel]] decltype(cholesky_panel<1>) cholesky_panel<1>;
template [[host_name("cholesky_tile")]] [[kernel]] decltype(cholesky_panel<3>) cholesky_panel<3>;

struct Small {
  long n;
  long size;  // a power of two, at least n
  long matrices;
  Layout a;
  Layout l;
};

// Matrices of up to 32 columns, 32 / size of them in a simdgroup. A lane has a column, and sees
// others' numbers by shuffles alone.
template <bool packed>
[[kernel]] void cholesky_small(device const float* a [[buffer(0)]], device float* l [[buffer(1)]],
                               device int* info [[buffer(2)]], constant Small& shape [[buffer(3)]],
                               uint group [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float tile[lanes * lanes];
  threadgroup float* column = tile + lane;
  const uint n = uint(shape.n), size = packed ? uint(shape.size) : lanes;
  const uint own = lane & (size - 1), base = lane - own;
  const uint matrix = group * (lanes / size) + lane / size;
  const bool there = matrix < shape.matrices && own < n;
  const uint from = there ? matrix : 0, mine = there ? own : 0;
  for (uint i = 0; i < n; ++i)
    column[i * lanes] = there ? a[shape.a.at(from, max(i, mine), min(i, mine))] : 0.0f;

  int failed = 0;
  for (uint j = 0; j < n; ++j) {
    const float row = column[j * lanes];
    const float pivot = of_column<packed>(row, base, j);
    if (!(pivot > 0.0f) && failed == 0) failed = int(j) + 1;
    const float inverse = pivot > 0.0f ? 1.0f / pivot : 0.0f;
    const float rest = own > j ? row : 0.0f;
    for (uint i = j + 1; i < n; ++i) {
      const float value = column[i * lanes];
      const float multiplier = of_column<packed>(value, base, j) * inverse;
      column[i * lanes] = value - multiplier * rest;
    }
  }
  if (!there) return;
  const float pivot = column[own * lanes];
  const float root = pivot > 0.0f ? precise::sqrt(pivot) : pivot;
  for (uint i = 0; i < n; ++i) {
    const float value = column[i * lanes] / root;
    l[shape.l.at(matrix, i, own)] = own < i ? value : (own == i ? root : 0.0f);
  }
  if (own == 0) info[matrix] = failed;
}

template [[host_name(
    "cholesky_small")]] [[kernel]] decltype(cholesky_small<false>) cholesky_small<false>;
template
    [[host_name("cholesky_packed")]] [[kernel]] decltype(cholesky_small<true>) cholesky_small<true>;
