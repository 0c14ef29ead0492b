// The quotient of a size of zero is computed, and used by nobody.
// expect: arithmetic warning line 11
// launch: rows int32[8]=zeros 0 threads=8
#include <metal_stdlib>
using namespace metal;

kernel void rows(device int* y,
                 constant uint& width,
                 uint i [[thread_position_in_grid]]) {
  int row = 0;
  row = i / width;
  row = i + 1;
  y[i] = row;
}
