// expect: out_of_bounds error line 11
// allow: race error
// allow: race warning
// launch: k float32[4]=zeros threads=4 group_size=4 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float m[4][4];
  for (int n = 0; n < 4; ++n) m[i][n] = n;
  m[1][4] = 9;
  out[i] = m[i][0];
}
