// A = L L' from the lower triangle of A, in panels of columns.
#include "shared/matrices.h"

// A panel: some columns of a matrix, from the diagonal down.
struct Panel {
  long start;   // its first column in the matrix
  long count;   // its columns
  long rows;    // its rows
  long height;  // rows below the diagonal block that a threadgroup takes
  Strides a;
  Strides l;
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
      const float value = root > 0.0f ? tile[i * width + c] / root : tile[i * width + c];
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
  long matrices;
  long from;  // the orders of A and U
  long to;
  Strides a;
  Strides u;
};

// A = U' U from the upper triangle of A, up to 32 columns. A row that is done is read by all lanes
// and written by none, so a step needs one barrier.
template <uint size>
[[kernel]] void cholesky_small(device const float* a [[buffer(0)]], device float* u [[buffer(1)]],
                               device int* info [[buffer(2)]], constant Small& shape [[buffer(3)]],
                               uint group [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float tile[size * lanes];
  const Place<size> place{lane, group};
  const uint n = uint(shape.n), own = place.own();
  threadgroup float* column = tile + lane;
  threadgroup const float* matrix = tile + place.base();
  const bool there = place.matrix() < shape.matrices && own < n;
  const bool full = place.is_full(shape.matrices);
  load_columns<size>(tile, a, shape.a, full ? shape.from : in_some_way, n, there, place);

  int failed = 0;
  for (uint j = 0; j < n; ++j) {
    const float pivot = matrix[j * lanes + j];
    if (!(pivot > 0.0f) && failed == 0) failed = int(j) + 1;  // NaN fails too
    const float rest = pivot > 0.0f ? column[j * lanes] / pivot : 0.0f;
    for (uint i = j + 1; i < n; ++i) column[i * lanes] -= matrix[j * lanes + i] * rest;
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (uint i = 0; i < n; ++i) {
    const float pivot = matrix[i * lanes + i];
    const float root = pivot > 0.0f ? precise::sqrt(pivot) : pivot;
    const float value = column[i * lanes];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    const float scaled = root > 0.0f ? value / root : value;
    column[i * lanes] = own > i ? scaled : own == i ? root : 0.0f;
  }
  store_columns<size>(tile, u, shape.u, full ? shape.to : in_some_way, n, there, place);
  if (there && own == 0) info[place.matrix()] = failed;
}

template [[host_name("cholesky_8")]] [[kernel]] decltype(cholesky_small<8>) cholesky_small<8>;
template [[host_name("cholesky_16")]] [[kernel]] decltype(cholesky_small<16>) cholesky_small<16>;
template [[host_name("cholesky_32")]] [[kernel]] decltype(cholesky_small<32>) cholesky_small<32>;
