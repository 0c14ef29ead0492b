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
template <uint capacity>
[[kernel]] void cholesky_panel(device const float* a [[buffer(0)]], device float* l [[buffer(1)]],
                               device int* info [[buffer(2)]], constant Panel& panel [[buffer(3)]],
                               uint2 group [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd [[simdgroup_index_in_threadgroup]],
                               uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float tile[capacity];
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

  int failed = 0;
  for (uint j = 0; j < count; ++j) {
    const float pivot = tile[j * width + j];
    const bool positive = pivot > 0.0f;  // false for NaN
    if (!positive && failed == 0) failed = int(panel.start + j) + 1;
    const float scale = positive ? 1.0f / precise::sqrt(pivot) : 0.0f;
    const uint next = j + 1;
    for (uint i = next + (simd + simdgroups - next % simdgroups) % simdgroups; i < rows;
         i += simdgroups) {
      const float own = tile[i * width + j / lanes * lanes + lane];
      const float multiplier = simd_broadcast(own, ushort(j % lanes)) * scale;
      for (uint chunk = width; chunk > j / lanes * lanes; chunk -= lanes) {
        const uint c = chunk - lanes + lane;
        const float value = tile[i * width + c];
        const float updated = value - multiplier * (tile[j * width + c] * scale);
        tile[i * width + c] = c > j ? updated : c == j ? multiplier : value;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  for (uint i = simd; i < rows; i += simdgroups) {
    if (i < count && group.x > 0) continue;
    const uint row = i < count ? i : first + i - count;
    for (uint c = lane; c < count; c += lanes) {
      const float value = tile[i * width + c];
      const float diagonal = value > 0.0f ? precise::sqrt(value) : value;
      l[panel.l.at(group.y, row, c)] = i >= count || c < i ? value : (c == i ? diagonal : 0.0f);
    }
  }
  if (group.x == 0 && simd == 0 && lane == 0 &&
      (panel.start == 0 || (failed > 0 && info[group.y] == 0)))
    info[group.y] = failed;
}

template
    [[host_name("cholesky_small")]] [[kernel]] decltype(cholesky_panel<1024>) cholesky_panel<1024>;
template
    [[host_name("cholesky_large")]] [[kernel]] decltype(cholesky_panel<7680>) cholesky_panel<7680>;
