// expect: out_of_bounds error line 10
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

constant float A[3] = {1, 2, 3};
constant float B[3] = {5, 6, 7};
constant constant float* T[2] = {A, B};
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  out[i] = T[0][i * 1000]; }
