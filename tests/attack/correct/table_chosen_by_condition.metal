// expect: nothing
// launch: k float32[8]=zeros threads=8 group_size=8
#include <metal_stdlib>
using namespace metal;

constant float A[4] = {1, 2, 3, 4};
constant float B[4] = {5, 6, 7, 8};
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  constant float* t = i < 4 ? A : B;
  out[i] = t[i % 4];
}
