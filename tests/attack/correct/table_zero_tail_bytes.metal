// expect: nothing
// launch: k float32[256]=zeros threads=256 group_size=64
#include <metal_stdlib>
using namespace metal;

constant uchar T[256] = {1, 2, 3};
kernel void k(device float* out, uint i [[thread_position_in_grid]]) { out[i] = T[i]; }
