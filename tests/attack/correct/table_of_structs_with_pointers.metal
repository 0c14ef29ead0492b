// expect: nothing
// launch: k float32[8]=zeros threads=8 group_size=8
#include <metal_stdlib>
using namespace metal;

struct Grid { constant float* values; int count; };
constant float A[3] = {1, 2, 3};
constant float B[5] = {5, 6, 7, 8, 9};
constant Grid T[2] = {{A, 3}, {B, 5}};
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  constant Grid& g = T[i % 2];
  float sum = 0;
  for (int n = 0; n < g.count; ++n) sum += g.values[n];
  out[i] = sum;
}
