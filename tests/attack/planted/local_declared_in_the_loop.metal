// expect: uninitialised error line 9
// launch: k float32[8]=random float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  for (uint n = 0; n < 2; ++n) {
    half sum; if (n == 0) sum = half(x[i]);
    out[i] = sum; }
}
