// The author's own condition: half of the threads pick past the row.
// expect: assertion error line 12 count 4
// launch: pick float32[16]=random float32[8]=zeros 8 threads=8
#include <metal_stdlib>
using namespace metal;

kernel void pick(device const float* x,
                 device float* y,
                 constant uint& length,
                 uint i [[thread_position_in_grid]]) {
  uint from = 2 * i;
  assert(from < length);
  y[i] = x[from];
}
