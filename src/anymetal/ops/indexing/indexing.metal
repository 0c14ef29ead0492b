// Elements taken from or added to the places that indices name.
//
// Tensors are [outer, places, inner]. An index of 32 or 64 bits stands for a row of `inner`
// elements, or for one element. Outside of the tensor it is reported, and nothing is read there.
#include "shared/indices.h"

struct Places {
  uint count;    // indices along the dimension
  uint places;   // of the tensor that they name
  uint inner;    // elements of one place
  uint is_wide;  // indices have 64 bits
  uint is_each;  // an index for each element, not for a row
  uint is_deep;  // the grid is (inner, count, outer), not (count * inner, 1, outer)
};

struct At {
  uint index;  // along the dimension
  uint inner;
  ulong row;      // of this outer
  ulong element;  // of [outer, count, inner]
};

inline At at_of(uint3 in_grid, constant Places& sizes) {
  At at;
  at.index = sizes.is_deep ? in_grid.y : in_grid.x / sizes.inner;
  at.inner = sizes.is_deep ? in_grid.x : in_grid.x % sizes.inner;
  at.row = ulong(in_grid.z) * sizes.count + at.index;
  at.element = at.row * sizes.inner + at.inner;
  return at;
}

inline bool is_outside(long found, constant Places& sizes,
                       device c10::metal::ErrorMessages* errors) {
  const bool outside = found < 0 || found >= long(sizes.places);
  if (outside)
    TORCH_REPORT_ERROR(errors, "index ", found, " is out of bounds for dimension with size ",
                       sizes.places);
  return outside;
}

// Elements are copied as bits: an instance for two bytes and one for four.
template <typename T>
[[kernel]] void take(device const T* x [[buffer(0)]], device const int* index [[buffer(1)]],
                     device T* y [[buffer(2)]], constant Places& sizes [[buffer(3)]],
                     device c10::metal::ErrorMessages* errors [[buffer(4)]],
                     uint3 in_grid [[thread_position_in_grid]]) {
  const At at = at_of(in_grid, sizes);
  const long found = index_at(index, sizes.is_each ? at.element : at.index, sizes.is_wide);
  T value = T(0);
  if (!is_outside(found, sizes, errors))
    value = x[(ulong(in_grid.z) * sizes.places + ulong(found)) * sizes.inner + at.inner];
  y[at.element] = value;
}

// Where elements, or rows, are to be added: 32 bits; -1 where the index is outside.
[[kernel]] void destinations(device const int* index [[buffer(0)]], device int* to [[buffer(1)]],
                             constant Places& sizes [[buffer(2)]],
                             device c10::metal::ErrorMessages* errors [[buffer(3)]],
                             uint3 in_grid [[thread_position_in_grid]]) {
  const At at = at_of(in_grid, sizes);
  const long found = index_at(index, at.element, sizes.is_wide);
  int place = -1;
  if (!is_outside(found, sizes, errors))
    place = int((ulong(in_grid.z) * sizes.places + ulong(found)) * sizes.inner + at.inner);
  to[at.element] = place;
}

struct Sums {
  uint count;   // rows of `source`
  uint places;  // rows of `y`
  uint inner;
  uint is_deep;  // the grid is (inner, count, outer), not (count, 1, outer) with inner 1
  float alpha;
};

// Rows that go to one place stand in a row of `order`; who finds their first adds them up, in that
// order and in float, and rounds once.
template <typename T>
[[kernel]] void add_sorted(device T* y [[buffer(0)]], device const T* source [[buffer(1)]],
                           device const int* to [[buffer(2)]],
                           device const int* order [[buffer(3)]],
                           constant Sums& sizes [[buffer(4)]],
                           uint3 in_grid [[thread_position_in_grid]]) {
  const uint start = sizes.is_deep ? in_grid.y : in_grid.x;
  const uint inner = sizes.is_deep ? in_grid.x : 0;
  const int place = to[start];
  if (place < 0 || (start > 0 && to[start - 1] == place)) return;
  const ulong first = ulong(in_grid.z) * sizes.count;
  float sum = 0.0f;
  for (uint i = start; i < sizes.count && to[i] == place; ++i)
    sum += float(source[(first + uint(order[i])) * sizes.inner + inner]);
  const ulong at = (ulong(in_grid.z) * sizes.places + uint(place)) * sizes.inner + inner;
  y[at] = T(float(y[at]) + sizes.alpha * sum);
}
INSTANTIATE(add_sorted)

template <typename T>
[[kernel]] void add_atomic(device atomic_float* y [[buffer(0)]],
                           device const T* source [[buffer(1)]], device const int* to [[buffer(2)]],
                           constant Sums& sizes [[buffer(3)]],
                           uint3 in_grid [[thread_position_in_grid]]) {
  const uint row = sizes.is_deep ? in_grid.y : in_grid.x;
  const uint inner = sizes.is_deep ? in_grid.x : 0;
  const int place = to[row];
  if (place < 0) return;
  const float value = source[(ulong(in_grid.z) * sizes.count + row) * sizes.inner + inner];
  const ulong at = (ulong(in_grid.z) * sizes.places + uint(place)) * sizes.inner + inner;
  atomic_fetch_add_explicit(y + at, sizes.alpha * value, memory_order_relaxed);
}
INSTANTIATE(add_atomic)

INSTANTIATE_ONE(take, int)
INSTANTIATE_ONE(take, short)

// --- long rows: a simdgroup a row, whose index all its lanes share ------------------------------

// The grid is (32, count, outer).
template <typename T>
[[kernel]] void take_rows(device const T* x [[buffer(0)]], device const int* index [[buffer(1)]],
                          device T* y [[buffer(2)]], constant Places& sizes [[buffer(3)]],
                          device c10::metal::ErrorMessages* errors [[buffer(4)]],
                          uint3 in_grid [[thread_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]]) {
  const ulong row = ulong(in_grid.z) * sizes.count + in_grid.y;
  const long found = index_at(index, in_grid.y, sizes.is_wide);
  const bool outside = found < 0 || found >= long(sizes.places);
  if (outside && lane == 0) is_outside(found, sizes, errors);
  device const T* from = x + (ulong(in_grid.z) * sizes.places + ulong(found)) * sizes.inner;
  device T* to = y + row * sizes.inner;
  for (uint i = lane; i < sizes.inner; i += 32) to[i] = outside ? T(0) : from[i];
}
INSTANTIATE_ONE(take_rows, int)
INSTANTIATE_ONE(take_rows, short)

struct Rows {
  uint count;   // indices
  uint rows;    // of `source`, of each outer
  uint places;  // rows of `y`
  uint inner;
  uint blocks;      // of 128 columns
  uint has_rows;    // an index takes the row of `source` that `rows` names, not its own
  uint has_scales;  // a factor for each index
  uint is_fresh;    // `y` is 0
  float alpha;
};

// Columns of a simdgroup: 32 side by side, four times.
constant constexpr uint STEP = 32;
constant constexpr uint STEPS = 4;

// A simdgroup 128 columns of a place, if `in_grid.y` is the first of its sorted indices. The grid
// is (32, indices, outer times the blocks of columns).
template <typename T>
[[kernel]] void add_rows_sorted(device T* y [[buffer(0)]], device const T* source [[buffer(1)]],
                                device const int* to [[buffer(2)]],
                                device const int* order [[buffer(3)]],
                                device const int* rows [[buffer(4)]],
                                device const float* scales [[buffer(5)]],
                                constant Rows& sizes [[buffer(6)]],
                                uint3 in_grid [[thread_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]]) {
  const uint start = in_grid.y, inner = sizes.inner;
  const int place = to[start];
  if (place < 0 || (start > 0 && to[start - 1] == place)) return;
  const uint outer = in_grid.z / sizes.blocks;
  const uint block = in_grid.z % sizes.blocks * (STEP * STEPS);
  const bool is_whole = block + STEP * STEPS <= inner;
  source += ulong(outer) * sizes.rows * inner + block;
  y += (ulong(outer) * sizes.places + uint(place)) * inner + block;
  float4 sum = 0.0f;
  uint i = start;
  do {
    const uint index = uint(order[i]);
    device const T* row = source + ulong(sizes.has_rows ? uint(rows[index]) : index) * inner;
    float4 values = 0.0f;
    for (uint k = 0; k < STEPS; ++k)
      if (is_whole || block + k * STEP + lane < inner) values[k] = float(row[k * STEP + lane]);
    sum = fma(float4(sizes.has_scales ? scales[index] : 1.0f), values, sum);
  } while (++i < sizes.count && to[i] == place);
  for (uint k = 0; k < STEPS; ++k) {
    const uint column = k * STEP + lane;
    if (!is_whole && block + column >= inner) break;
    const float before = sizes.is_fresh ? 0.0f : float(y[column]);
    y[column] = T(before + sizes.alpha * sum[k]);
  }
}
INSTANTIATE(add_rows_sorted)

template <typename T>
[[kernel]] void add_rows_atomic(
    device atomic_float* y [[buffer(0)]], device const T* source [[buffer(1)]],
    device const int* to [[buffer(2)]], device const int* rows [[buffer(3)]],
    device const float* scales [[buffer(4)]], constant Rows& sizes [[buffer(5)]],
    uint3 in_grid [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const int place = to[in_grid.y];
  if (place < 0) return;
  const ulong row = sizes.has_rows ? uint(rows[in_grid.y]) : in_grid.y;
  const float scale = sizes.has_scales ? sizes.alpha * scales[in_grid.y] : sizes.alpha;
  source += (ulong(in_grid.z) * sizes.rows + row) * sizes.inner;
  y += (ulong(in_grid.z) * sizes.places + uint(place)) * sizes.inner;
  for (uint i = lane; i < sizes.inner; i += 32)
    atomic_fetch_add_explicit(y + i, scale * float(source[i]), memory_order_relaxed);
}
INSTANTIATE(add_rows_atomic)
