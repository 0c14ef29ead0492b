// expect: nothing
// launch: k float32[32]=random float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device const float* y, device float* out, uint i [[thread_position_in_grid]]) {
  device const float* from;
  if (i % 3 == 0) from = x; else from = y;
  float v;
  switch (i % 3) { case 0: v = 1; break; case 1: v = 2; break; default: v = 3; }
  out[i] = from[i] * v;
}
