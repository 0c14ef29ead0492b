// expect: nothing
// launch: k float32[16]=zeros threads=16 group_size=16
#include <metal_stdlib>
using namespace metal;

constant int T[4][4] = {{1, 2}, {3}, {4, 5, 6}};
kernel void k(device float* out, uint i [[thread_position_in_grid]]) { out[i] = T[i / 4][i % 4]; }
