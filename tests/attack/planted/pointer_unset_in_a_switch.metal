// expect: uninitialised error line 10
// allow: out_of_bounds error
// launch: k float32[8]=random float32[8]=random float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device const float* y, device float* out, uint i [[thread_position_in_grid]]) {
  device const float* p;
  switch (i % 3) { case 0: p = x; break; case 1: p = y; break; }
  out[i] = p[i];
}
