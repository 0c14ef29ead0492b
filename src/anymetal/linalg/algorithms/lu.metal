// P A = L U with partial pivoting: a matrix in threadgroup memory, or a panel of a large one.
#include "shared/matrices.h"

constant constexpr uint most_simdgroups = 32;
constant constexpr uint capacity = 7680;  // numbers of a tile

struct Factor {
  long rows;
  long columns;  // of the matrix, or of the panel
  long start;    // the panel's first row and column
  Strides a;
  Strides lu;
  Strides pivots;
};

// The simdgroups' candidates for the next pivot.
struct Candidates {
  float size[most_simdgroups];
  uint row[most_simdgroups];
};

// The row of the largest candidate; the lowest where several are.
inline uint chosen(threadgroup const Candidates& candidates, uint lane, uint simdgroups) {
  const bool there = lane < simdgroups;
  const float size = there ? candidates.size[lane] : -1.0f;
  const uint row = there ? candidates.row[lane] : 0xffffffff;
  return simd_min(size == simd_max(size) ? row : 0xffffffff);
}

// Factors `rows` rows of `columns` numbers that are `stride` apart, from row and column 0 on. All
// columns of a row that `width` covers may be written. Returns the first zero pivot, from 1 on.
template <typename Pointer>
inline int factor(Pointer a, long stride, uint rows, uint columns, uint width, uint first_row,
                  device int* pivots, long next_pivot, threadgroup Candidates& candidates,
                  uint lane, uint simd, uint simdgroups, mem_flags flags) {
  float largest = -1.0f;
  uint largest_row = simd < rows ? simd : 0;
  for (uint i = simd; i < rows; i += simdgroups) {
    const float size = fabs(a[i * stride]);
    if (size > largest) {
      largest = size;
      largest_row = i;
    }
  }
  int zero = 0;
  for (uint j = 0; j < min(rows, columns); ++j) {
    if (lane == 0) {
      candidates.size[simd] = largest;
      candidates.row[simd] = largest_row;
    }
    threadgroup_barrier(flags);
    uint row = chosen(candidates, lane, simdgroups);
    if (row >= rows) row = j;  // a column of NaN has no largest
    if (simd == 0) {
      if (lane == 0) pivots[j * next_pivot] = int(first_row + row) + 1;
      if (row != j)
        for (uint c = lane; c < width; c += lanes) {
          const float other = a[row * stride + c];
          a[row * stride + c] = a[j * stride + c];
          a[j * stride + c] = other;
        }
    }
    threadgroup_barrier(flags);

    const float pivot = a[j * stride + j];
    if (pivot == 0.0f && zero == 0) zero = int(first_row + j) + 1;
    const uint next = j + 1;
    largest = -1.0f;
    const uint own = next + (simd + simdgroups - next % simdgroups) % simdgroups;
    largest_row = own < rows ? own : j;
    for (uint i = own; i < rows; i += simdgroups) {
      const float below = a[i * stride + j / lanes * lanes + lane];
      const float numerator = simd_broadcast(below, ushort(j % lanes));
      const float multiplier = pivot == 0.0f ? numerator : numerator / pivot;
      for (uint chunk = width; chunk > j / lanes * lanes; chunk -= lanes) {
        const uint c = chunk - lanes + lane;
        const float value = a[i * stride + c];
        const float updated = value - multiplier * a[j * stride + c];
        const float kept = c > j ? updated : c == j ? multiplier : value;
        a[i * stride + c] = kept;
        if (next / lanes * lanes == chunk - lanes) {
          const float size = fabs(simd_broadcast(kept, ushort(next % lanes)));
          if (size > largest) {
            largest = size;
            largest_row = i;
          }
        }
      }
    }
  }
  threadgroup_barrier(flags);
  return zero;
}

// A threadgroup a matrix.
[[kernel]] void lu_tile(device const float* a [[buffer(0)]], device float* lu [[buffer(1)]],
                        device int* pivots [[buffer(2)]], device int* info [[buffer(3)]],
                        constant Factor& shape [[buffer(4)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float tile[capacity];
  threadgroup Candidates candidates;
  const uint rows = uint(shape.rows), columns = uint(shape.columns);
  const uint width = (columns + lanes - 1) / lanes * lanes;
  for (uint i = simd; i < rows; i += simdgroups)
    for (uint c = lane; c < width; c += lanes)
      tile[i * width + c] = c < columns ? a[shape.a.at(group, i, c)] : 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const int zero = factor<threadgroup float*>(tile, width, rows, columns, width, 0,
                                              pivots + group * shape.pivots.matrix, 1, candidates,
                                              lane, simd, simdgroups, mem_flags::mem_threadgroup);

  for (uint i = simd; i < rows; i += simdgroups)
    for (uint c = lane; c < columns; c += lanes) lu[shape.lu.at(group, i, c)] = tile[i * width + c];
  if (simd == 0 && lane == 0) info[group] = zero;
}

struct Small {
  long rows;
  long columns;
  long matrices;
  long from;  // the orders of A and of its factors
  long to;
  Strides a;
  Strides lu;
};

// Matrices of up to 32 rows and columns. Every lane of a matrix finds the same pivots. Columns are
// divided by their pivots when they are written.
template <uint size>
[[kernel]] void lu_small(device const float* a [[buffer(0)]], device float* lu [[buffer(1)]],
                         device int* pivots [[buffer(2)]], device int* info [[buffer(3)]],
                         constant Small& shape [[buffer(4)]],
                         uint group [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float tile[size * lanes];
  const Place<size> place{lane, group};
  threadgroup float* column = tile + lane;
  const uint rows = uint(shape.rows), columns = uint(shape.columns), count = min(rows, columns);
  const uint own = place.own(), base = place.base(), matrix = place.matrix();
  const bool there = matrix < shape.matrices && own < columns;
  const bool full = place.is_full(shape.matrices);
  load_columns<size>(tile, a, shape.a, full ? shape.from : in_some_way, rows, there, place);

  float largest = -1.0f;
  uint candidate = 0;  // the largest of this lane's column
  for (uint i = 0; i < rows; ++i) {
    const float value = fabs(column[i * lanes]);
    candidate = value > largest ? i : candidate;
    largest = max(largest, value);
  }
  int zero = 0;
  for (uint j = 0; j < count; ++j) {
    const uint pivot_row = of_column<size>(candidate, base, j);
    const float row = column[pivot_row * lanes];
    column[pivot_row * lanes] = column[j * lanes];
    column[j * lanes] = row;
    if (there && own == j) pivots[matrix * count + j] = int(pivot_row) + 1;
    const float pivot = of_column<size>(row, base, j);
    if (pivot == 0.0f && zero == 0) zero = int(j) + 1;
    const float rest = own > j ? row : 0.0f;
    largest = -1.0f;
    candidate = min(j + 1, size - 1);
    for (uint i = j + 1; i < rows; ++i) {
      const float value = column[i * lanes];
      const float below = of_column<size>(value, base, j);
      const float multiplier = pivot == 0.0f ? below : below / pivot;
      const float kept = value - multiplier * rest;
      column[i * lanes] = kept;
      candidate = fabs(kept) > largest ? i : candidate;
      largest = max(largest, fabs(kept));
    }
  }
  const float pivot = own < count ? column[own * lanes] : 1.0f;
  for (uint i = 0; i < rows; ++i) {
    const float value = column[i * lanes];
    column[i * lanes] = i > own && pivot != 0.0f ? value / pivot : value;
  }
  store_columns<size>(tile, lu, shape.lu, full ? shape.to : in_some_way, rows, there, place);
  if (there && own == 0) info[matrix] = zero;
}

template [[host_name("lu_8")]] [[kernel]] decltype(lu_small<8>) lu_small<8>;
template [[host_name("lu_16")]] [[kernel]] decltype(lu_small<16>) lu_small<16>;
template [[host_name("lu_32")]] [[kernel]] decltype(lu_small<32>) lu_small<32>;

struct SmallSystem {
  long n;
  long columns;  // of B
  long matrices;
  long from;      // the order of A
  long to;        // of X
  long vector;    // B and X are one vector of `size` numbers a matrix, one behind the other
  long identity;  // B is the identity and not read
  Strides a;
  Strides b;
  Strides x;
};

// A X = B for matrices of up to 32 columns and at most as many columns of B: elimination with
// partial pivoting, and substitution. A lane has a column of A and one of B, which is every lane's
// where B is a vector. L is not kept: lanes whose column is done write it no more, and others read
// multipliers from it. The swap of two rows is part of the elimination.
template <uint size>
[[kernel]] void solve_small(device const float* a [[buffer(0)]],
                            device const float* b [[buffer(1)]], device float* x [[buffer(2)]],
                            device int* info [[buffer(3)]],
                            constant SmallSystem& shape [[buffer(4)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float tile[size * lanes], solution[size * lanes];
  threadgroup uint candidates[lanes];
  const Place<size> place{lane, group};
  const uint n = uint(shape.n), own = place.own(), base = place.base(), at = place.matrix();
  threadgroup float* column = tile + lane;
  threadgroup const float* matrix = tile + base;
  threadgroup float* right = solution + lane;
  const bool present = at < shape.matrices, full = place.is_full(shape.matrices);
  const bool there = present && own < shape.columns, vector = full && shape.vector != 0;
  load_columns<size>(tile, a, shape.a, full ? shape.from : in_some_way, n, present && own < n,
                     place);
  if (vector) {
    device const float* given = b + ulong(group) * lanes + base;
    for (uint i = 0; i < size; ++i) right[i * lanes] = given[i];
  } else {
    for (uint i = 0; i < n; ++i) {
      const float unit = own == i ? 1.0f : 0.0f;
      right[i * lanes] = shape.identity != 0 ? unit : there ? b[shape.b.at(at, i, own)] : 0.0f;
    }
  }

  float largest = -1.0f;
  uint candidate = 0;  // the largest of this lane's column
  for (uint i = 0; i < n; ++i) {
    const float value = fabs(column[i * lanes]);
    candidate = value > largest ? i : candidate;
    largest = max(largest, value);
  }
  int zero = 0;
  for (uint j = 0; j < n; ++j) {
    candidates[lane] = candidate;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    const uint pivot_row = candidates[base + j];
    const float before = column[j * lanes], pivot_before = matrix[j * lanes + j];
    const float row = column[pivot_row * lanes];
    const float right_before = right[j * lanes], right_row = right[pivot_row * lanes];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    column[j * lanes] = row;
    right[j * lanes] = right_row;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    const float pivot = matrix[j * lanes + j];
    if (pivot == 0.0f && zero == 0) zero = int(j) + 1;
    // Powers of two keep the inverse of a pivot from overflow and from denormals.
    const float magnitude = fabs(pivot);
    const float scale = magnitude < 0x1p-100f ? 0x1p64f : magnitude > 0x1p100f ? 0x1p-64f : 1.0f;
    const float inverse = pivot == 0.0f ? 1.0f : 1.0f / (pivot * scale);
    largest = -1.0f;
    candidate = min(j + 1, size - 1);
    for (uint i = j + 1; i < n; ++i) {
      const float below = i == pivot_row ? pivot_before : matrix[i * lanes + j];
      const float multiplier = below * scale * inverse;
      const float right_value = i == pivot_row ? right_before : right[i * lanes];
      right[i * lanes] = right_value - multiplier * right_row;
      const float kept = (i == pivot_row ? before : column[i * lanes]) - multiplier * row;
      if (own > j) column[i * lanes] = kept;
      candidate = fabs(kept) > largest ? i : candidate;
      largest = max(largest, fabs(kept));
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);

  float component = 0.0f;  // of a vector
  for (uint j = n; j-- > 0;) {
    const float solved = right[j * lanes] / matrix[j * lanes + j];
    right[j * lanes] = solved;
    component = own == j ? solved : component;
    for (uint i = 0; i < j; ++i) right[i * lanes] -= matrix[i * lanes + j] * solved;
  }
  if (vector)
    x[ulong(group) * lanes + lane] = component;
  else
    store_columns<size>(solution, x, shape.x, full ? shape.to : in_some_way, n, there, place);
  if (present && own == 0) info[at] = zero;
}

template [[host_name("solve_8")]] [[kernel]] decltype(solve_small<8>) solve_small<8>;
template [[host_name("solve_16")]] [[kernel]] decltype(solve_small<16>) solve_small<16>;
template [[host_name("solve_32")]] [[kernel]] decltype(solve_small<32>) solve_small<32>;

// A threadgroup a panel of up to 32 columns, where it lies. `scratch` has 32 columns for each row.
[[kernel]] void lu_panel(device float* lu [[buffer(0)]], device float* scratch [[buffer(1)]],
                         device int* pivots [[buffer(2)]], device int* info [[buffer(3)]],
                         constant Factor& shape [[buffer(4)]],
                         uint group [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup Candidates candidates;
  const uint start = uint(shape.start), rows = uint(shape.rows) - start;
  const uint columns = uint(shape.columns);
  const bool inside = lane < columns;
  device float* panel = scratch + group * shape.rows * lanes;
  device float* from = lu + shape.lu.at(group, start, start + min(lane, columns - 1));
  for (uint i = simd; i < rows; i += simdgroups)
    panel[i * lanes + lane] = inside ? from[i * shape.lu.row] : 0.0f;
  threadgroup_barrier(mem_flags::mem_device);

  const int zero = factor<device float*>(
      panel, lanes, rows, columns, lanes, start, pivots + group * shape.pivots.matrix + start, 1,
      candidates, lane, simd, simdgroups, mem_flags::mem_device | mem_flags::mem_threadgroup);

  for (uint i = simd; i < rows; i += simdgroups)
    if (inside) from[i * shape.lu.row] = panel[i * lanes + lane];
  if (simd == 0 && lane == 0 && (start == 0 || (zero > 0 && info[group] == 0))) info[group] = zero;
}

struct Swap {
  long rows;     // of the panel
  long columns;  // of the matrix
  long start;
  long count;  // columns of the panel
  Strides lu;
  Strides pivots;
};

// A thread a column outside of the panel: the panel's row swaps, and right of it U = L^-1 A.
[[kernel]] void lu_swap_solve(device float* lu [[buffer(0)]],
                              device const int* pivots [[buffer(1)]],
                              constant Swap& shape [[buffer(2)]],
                              uint2 group [[threadgroup_position_in_grid]],
                              uint in_group [[thread_index_in_threadgroup]],
                              uint2 size [[threads_per_threadgroup]]) {
  threadgroup float tile[lanes * lanes];
  const uint start = uint(shape.start), count = uint(shape.count);
  for (uint at = in_group; at < count * lanes; at += size.x) {
    const uint i = at / lanes, j = at % lanes;
    tile[at] = j < i ? lu[shape.lu.at(group.y, start + i, start + j)] : 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint column = group.x * size.x + in_group;
  if (column >= start) column += count;  // the panel itself is done
  if (column >= shape.columns) return;

  device float* own = lu + shape.lu.at(group.y, 0, column);
  device const int* to = pivots + group.y * shape.pivots.matrix + start;
  for (uint j = 0; j < count; ++j) {
    const uint other = uint(to[j]) - 1;
    const float value = own[other * shape.lu.row];
    own[other * shape.lu.row] = own[(start + j) * shape.lu.row];
    own[(start + j) * shape.lu.row] = value;
  }
  if (column < start) return;
  float solved[lanes];
  for (uint i = 0; i < count; ++i) {
    float value = own[(start + i) * shape.lu.row];
    for (uint j = 0; j < i; ++j) value -= tile[i * lanes + j] * solved[j];
    solved[i] = value;
    own[(start + i) * shape.lu.row] = value;
  }
}

struct Permute {
  long count;  // swaps
  long columns;
  long backward;
  Strides x;
  Strides pivots;
};

// A thread a column of X: swaps its rows as the pivots say, or back.
[[kernel]] void swap_rows(device float* x [[buffer(0)]], device const int* pivots [[buffer(1)]],
                          constant Permute& shape [[buffer(2)]],
                          uint2 at [[thread_position_in_grid]]) {
  if (at.x >= shape.columns) return;
  device float* own = x + shape.x.at(at.y, 0, at.x);
  device const int* to = pivots + at.y * shape.pivots.matrix;
  for (uint step = 0; step < shape.count; ++step) {
    const uint j = shape.backward != 0 ? uint(shape.count) - 1 - step : step;
    const uint other = uint(to[j]) - 1;
    const float value = own[other * shape.x.row];
    own[other * shape.x.row] = own[j * shape.x.row];
    own[j * shape.x.row] = value;
  }
}

struct SmallSolve {
  long n;
  long matrices;
  long columns;  // of B
  long adjoint;  // A' X = B
  Strides lu;
  Strides b;
  Strides x;
};

// A X = B from the factors of matrices of up to 32 columns, for few columns of B. A lane has a row
// of the factors and of X.
template <uint size>
[[kernel]] void lu_solve_small(device const float* lu [[buffer(0)]],
                               device const int* pivots [[buffer(1)]],
                               device const float* b [[buffer(2)]], device float* x [[buffer(3)]],
                               constant SmallSolve& shape [[buffer(4)]],
                               uint group [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float tile[lanes * lanes];
  threadgroup float* row = tile + lane;
  const Place<size> place{lane, group};
  const uint n = uint(shape.n), own = place.own(), base = place.base(), matrix = place.matrix();
  const bool there = matrix < shape.matrices && own < n, adjoint = shape.adjoint != 0;
  const bool present = matrix < shape.matrices;
  float diagonal = 1.0f;
  float source = float(own);  // of this lane's row before the swaps
  for (uint j = 0; j < n; ++j) {
    const uint r = adjoint ? j : own, c = adjoint ? own : j;
    const float value = there ? lu[shape.lu.at(matrix, r, c)] : 0.0f;
    row[j * lanes] = value;
    if (own == j && there) diagonal = value;
    const uint other = present ? uint(pivots[matrix * n + j]) - 1 : j;
    const float here = of_column<size>(source, base, j);
    const float swapped = simd_shuffle(source, ushort(base + other));
    source = own == j ? swapped : own == other ? here : source;
  }
  const uint from = uint(source);
  for (uint column = 0; column < shape.columns; ++column) {
    float value = there ? b[shape.b.at(matrix, adjoint ? own : from, column)] : 0.0f;
    for (uint j = 0; j < n; ++j) {
      if (adjoint && own == j) value /= diagonal;
      const float solved = of_column<size>(value, base, j);
      value -= own > j ? row[j * lanes] * solved : 0.0f;
    }
    for (uint j = n; j-- > 0;) {
      if (!adjoint && own == j) value /= diagonal;
      const float solved = of_column<size>(value, base, j);
      value -= own < j ? row[j * lanes] * solved : 0.0f;
    }
    if (there) x[shape.x.at(matrix, adjoint ? from : own, column)] = value;
  }
}

template [[host_name("lu_solve_8")]] [[kernel]] decltype(lu_solve_small<8>) lu_solve_small<8>;
template [[host_name("lu_solve_16")]] [[kernel]] decltype(lu_solve_small<16>) lu_solve_small<16>;
template [[host_name("lu_solve_32")]] [[kernel]] decltype(lu_solve_small<32>) lu_solve_small<32>;
