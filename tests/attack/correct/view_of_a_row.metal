// A row in the middle of a matrix is all that is touched.
// expect: nothing
// launch: k float32[32]+32=random float32[32]+64=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) { out[i] = x[31 - i]; }
