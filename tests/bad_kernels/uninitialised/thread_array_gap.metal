// A thread array filled up to a length the caller gives, and read to its end.
// expect: uninitialised error line 16 buffer values
// allow: uninitialised error line 18 buffer values
// launch: largest_first float32[8,4]=random float32[8]=zeros 3 threads=8
#include <metal_stdlib>
using namespace metal;

kernel void largest_first(device const float* x,
                          device float* y,
                          constant uint& used,
                          uint row [[thread_position_in_grid]]) {
  float values[4];
  for (uint i = 0; i < used; ++i) values[i] = x[row * 4 + i];
  uint best = 0;
  for (uint i = 1; i < 4; ++i) {
    if (values[i] > values[best]) best = i;
  }
  y[row] = values[best];
}
