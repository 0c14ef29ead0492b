// beside_a_choice, corrected: what is cleared is declared as such.
// expect: nothing
// launch: swap_halves float32[32]=random float32[16]=zeros float32[16]=zeros threads=32
#include <metal_stdlib>
using namespace metal;

kernel void swap_halves(device float* x,
                        device float* low,
                        device float* high,
                        uint in_grid [[thread_position_in_grid]]) {
  device float* place = in_grid < 16 ? high + in_grid : low + (in_grid - 16);
  *place = x[in_grid];
  device float* spent = x + in_grid;
  *spent = 0.0f;
}
