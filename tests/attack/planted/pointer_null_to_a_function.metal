// expect: out_of_bounds error line 6
// launch: k float32[8]=random float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

float first(device const float* p) { return p[0]; }
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  out[i] = first(i == 3 ? nullptr : x);
}
