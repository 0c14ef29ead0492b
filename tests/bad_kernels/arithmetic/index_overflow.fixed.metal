// 64 bits.
// expect: nothing
// launch: mark float32[16]=zeros 65536 65536 outputs=none threads=16
#include <metal_stdlib>
using namespace metal;

inline long place(int row, int column, int columns) {
  return long(row) * columns + column;
}

kernel void mark(device float* y,
                 constant int& row,
                 constant int& columns,
                 uint in_grid [[thread_position_in_grid]]) {
  long at = place(row, in_grid, columns);
  if (at >= 0 && at < 16)
    y[at] = 1.0f;
}
