// expect: out_of_bounds error line 8
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  half m[2][3][4] = {};
  uint middle = i % 4; out[i] = m[0][middle][1];
}
