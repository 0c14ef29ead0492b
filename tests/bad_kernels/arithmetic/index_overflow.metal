// The index of a row far down does not fit into 32 bits. That it wraps to zero and passes the test is
// luck: signed overflow is undefined.
// expect: arithmetic error line 9
// launch: mark float32[16]=zeros 65536 65536 outputs=none threads=16
#include <metal_stdlib>
using namespace metal;

inline int place(int row, int column, int columns) {
  return row * columns + column;
}

kernel void mark(device float* y,
                 constant int& row,
                 constant int& columns,
                 uint in_grid [[thread_position_in_grid]]) {
  int at = place(row, in_grid, columns);
  if (at >= 0 && at < 16)
    y[at] = 1.0f;
}
