// expect: out_of_bounds error line 10
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

constant float A[3] = {1, 2, 3};
constant float B[3] = {5, 6, 7};
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  constant float* t = i % 2 ? A : B;
  out[i] = t[i == 3 ? 5000 : 2];
}
