// Swaps halves through a pointer that is chosen at run time, and clears what it has read: a buffer
// that is declared const.
// expect: read_only error line 15 buffer x count 32
// launch: swap_halves float32[32]=random float32[16]=zeros float32[16]=zeros threads=32
#include <metal_stdlib>
using namespace metal;

kernel void swap_halves(device const float* x,
                        device float* low,
                        device float* high,
                        uint in_grid [[thread_position_in_grid]]) {
  device float* place = in_grid < 16 ? high + in_grid : low + (in_grid - 16);
  *place = x[in_grid];
  device float* spent = const_cast<device float*>(x) + in_grid;
  *spent = 0.0f;
}
