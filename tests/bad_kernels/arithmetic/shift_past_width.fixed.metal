// shift_past_width, corrected: the whole width is a case of its own.
// expect: nothing
// launch: masks uint32[4]=1,8,31,32 uint32[4]=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void masks(device const uint* bits,
                  device uint* y,
                  uint in_grid [[thread_position_in_grid]]) {
  const uint count = bits[in_grid];
  y[in_grid] = count >= 32 ? ~0u : (1u << count) - 1u;
}
