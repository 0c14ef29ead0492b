// Bags of rows of a table: their sum, mean or largest elements.
#include "shared/indices.h"

enum Mode : uint { sum_of_rows, mean_of_rows, largest_of_rows };

struct Bags {
  uint bags;
  uint columns;
  uint places;   // rows of the table
  uint indices;  // of all bags
  uint mode;
  uint offset_is_wide;
  uint length;       // of every bag, where there are no offsets; 0 otherwise
  uint has_last;     // offsets end with the end of the last bag
  uint has_weights;  // a weight for each index
  int padding;       // rows left out; -1 for none
};

inline uint bounded(long offset, uint most) { return uint(clamp(offset, long(0), long(most))); }

// The bag's indices: `start` to `end`.
inline uint2 indices_of(uint bag, device const int* offsets, constant Bags& numbers) {
  if (numbers.length > 0) return uint2(bag, bag + 1) * numbers.length;
  const uint start = bounded(index_at(offsets, bag, numbers.offset_is_wide), numbers.indices);
  if (bag + 1 == numbers.bags && !numbers.has_last) return uint2(start, numbers.indices);
  return uint2(start, bounded(index_at(offsets, bag + 1, numbers.offset_is_wide), numbers.indices));
}

// Columns of a simdgroup: 32 side by side, four times.
constant constexpr uint STEP = 32;
constant constexpr uint STEPS = 4;

// A simdgroup 128 columns of a bag. Its lanes share the rows: `rows` has one for each index, -1 for
// those outside of the table, which were reported before.
template <typename T>
[[kernel]] void embedding_bag(device const T* table [[buffer(0)]],
                              device const int* rows [[buffer(1)]],
                              device const int* offsets [[buffer(2)]],
                              device const T* weights [[buffer(3)]], device T* y [[buffer(4)]],
                              device int* largest_at [[buffer(5)]], device int* sizes [[buffer(6)]],
                              constant Bags& numbers [[buffer(7)]],
                              uint3 in_grid [[thread_position_in_grid]],
                              uint lane [[thread_index_in_simdgroup]]) {
  const uint columns = numbers.columns, bag = in_grid.y;
  const uint block = in_grid.z * (STEP * STEPS);
  const uint2 indices = indices_of(bag, offsets, numbers);
  const bool largest = numbers.mode == largest_of_rows;
  const uint column = block + lane;
  const bool is_whole = block + STEP * STEPS <= columns;
  float4 total = 0.0f;
  int4 at = -1;
  int count = 0;
  for (uint i = indices.x; i < indices.y; ++i) {
    const int row = rows[i];
    if (row < 0 || row == numbers.padding) continue;
    device const T* elements = table + ulong(row) * columns + block;
    float4 values = 0.0f;
    for (uint k = 0; k < STEPS; ++k)
      if (is_whole || column + k * STEP < columns) values[k] = float(elements[k * STEP + lane]);
    if (largest) {
      const bool4 taken = at < 0 || values > total || isnan(values);
      total = select(total, values, taken);
      at = select(at, int4(row), taken);
    } else {
      total = fma(float4(numbers.has_weights ? float(weights[i]) : 1.0f), values, total);
    }
    ++count;
  }
  if (numbers.mode == mean_of_rows && count > 0) total /= float(count);
  y += ulong(bag) * columns;
  if (largest) largest_at += ulong(bag) * columns;
  for (uint k = 0; k < STEPS; ++k) {
    if (column + k * STEP >= columns) break;
    y[column + k * STEP] = T(total[k]);
    if (largest) largest_at[column + k * STEP] = at[k];
  }
  if (block == 0 && lane == 0) sizes[bag] = count;
}
INSTANTIATE(embedding_bag)
