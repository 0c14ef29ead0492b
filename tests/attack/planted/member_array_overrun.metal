// expect: out_of_bounds error line 10
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

struct Taps { float weights[3]; int offsets[3]; };
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  Taps t;
  for (int n = 0; n < 3; ++n) t.offsets[n] = n;
  for (int n = 0; n <= 3; ++n) t.weights[n] = n;
  out[i] = t.weights[i % 3];
}
