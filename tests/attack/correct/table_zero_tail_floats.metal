// expect: nothing
// launch: k float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

constant float T[64] = {1.5f};
kernel void k(device float* out, uint i [[thread_position_in_grid]]) { out[i] = T[63 - i]; }
