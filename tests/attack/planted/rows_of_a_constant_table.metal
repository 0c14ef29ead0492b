// expect: out_of_bounds error line 9
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

constant float T[4][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  uint c = i;
  out[i] = T[0][c];
}
