// expect: out_of_bounds error line 8
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

constant uchar T[6] = {1, 2, 3};
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  out[i] = T[i]; }
