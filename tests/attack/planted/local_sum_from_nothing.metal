// expect: uninitialised error line 8
// launch: k float32[8]=random float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float sum;
  for (uint n = 0; n < 8; ++n) sum += x[n];
  out[i] = sum;
}
