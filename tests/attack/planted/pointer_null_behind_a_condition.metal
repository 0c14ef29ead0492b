// expect: out_of_bounds error line 9
// launch: k float32[8]=random float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  device const float* p = nullptr;
  if (i < 7) p = x;
  out[i] = p[i];
}
