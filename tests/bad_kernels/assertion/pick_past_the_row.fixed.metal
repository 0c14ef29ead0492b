// pick_past_the_row, corrected: the row is as long as the launch says.
// expect: nothing
// launch: pick float32[16]=random float32[8]=zeros 16 threads=8
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
