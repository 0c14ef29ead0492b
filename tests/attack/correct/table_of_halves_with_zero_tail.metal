// expect: nothing
// launch: k float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

constant half T[32] = {1.0h, 2.0h};
constant float3 C[3] = {float3(1, 2, 3), float3(4, 5, 6)};
kernel void k(device float* out, uint i [[thread_position_in_grid]]) { out[i] = T[i] + C[i % 3].y; }
