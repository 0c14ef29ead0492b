// Bags of rows of a table: their sum, mean or largest elements.
#include "shared/indices.h"

enum Mode : uint { sum_of_rows, mean_of_rows, largest_of_rows };

struct Bags {
  uint bags;
  uint columns;
  uint places;   // rows of the table
  uint indices;  // of all bags
  uint mode;
  uint index_is_wide;
  uint offset_is_wide;
  uint length;       // of every bag, where there are no offsets; 0 otherwise
  uint has_last;     // offsets end with the end of the last bag
  uint has_weights;  // a weight for each index
  int padding;       // rows left out; -1 for none
};

inline uint bounded(long offset, uint most) { return uint(clamp(offset, long(0), long(most))); }

// A thread a column of a bag. Columns stand side by side.
template <typename T>
[[kernel]] void embedding_bag(device const T* table [[buffer(0)]],
                              device const int* index [[buffer(1)]],
                              device const int* offsets [[buffer(2)]],
                              device const T* weights [[buffer(3)]], device T* y [[buffer(4)]],
                              device int* largest_at [[buffer(5)]], device int* sizes [[buffer(6)]],
                              constant Bags& numbers [[buffer(7)]],
                              device c10::metal::ErrorMessages* errors [[buffer(8)]],
                              uint2 in_grid [[thread_position_in_grid]]) {
  const uint column = in_grid.x, bag = in_grid.y;
  uint start = bag * numbers.length, end = start + numbers.length;
  if (numbers.length == 0) {
    const bool is_last = bag + 1 == numbers.bags && !numbers.has_last;
    start = bounded(index_at(offsets, bag, numbers.offset_is_wide), numbers.indices);
    end = numbers.indices;
    if (!is_last)
      end = bounded(index_at(offsets, bag + 1, numbers.offset_is_wide), numbers.indices);
  }
  float total = 0.0f;
  int count = 0, at = -1;
  for (uint i = start; i < end; ++i) {
    const long row = index_at(index, i, numbers.index_is_wide);
    if (numbers.padding >= 0 && row == long(numbers.padding)) continue;
    if (row < 0 || row >= long(numbers.places)) {
      TORCH_REPORT_ERROR(errors, "embedding_bag: index ", row, " is out of range; the table has ",
                         numbers.places, " rows");
      continue;
    }
    const float value = float(table[ulong(row) * numbers.columns + column]);
    if (numbers.mode == largest_of_rows) {
      if (count == 0 || value > total || isnan(value)) {
        total = value;
        at = int(row);
      }
    } else {
      total += numbers.has_weights ? value * float(weights[i]) : value;
    }
    ++count;
  }
  if (numbers.mode == mean_of_rows && count > 0) total /= float(count);
  y[ulong(bag) * numbers.columns + column] = T(total);
  if (numbers.mode == largest_of_rows) largest_at[ulong(bag) * numbers.columns + column] = at;
  if (column == 0) sizes[bag] = count;
}
INSTANTIATE(embedding_bag)
