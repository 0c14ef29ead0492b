// expect: out_of_bounds error line 9
// launch: k float32[8]=random float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float m[3][3];
  for (int r = 0; r < 3; ++r)
    for (int c = 0; c < 3 + int(x[i] > 99) + int(i == 5); ++c) m[r][c] = x[i];
  out[i] = m[i % 3][1];
}
