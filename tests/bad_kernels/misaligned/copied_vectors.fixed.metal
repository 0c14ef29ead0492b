// packed_float4 needs no more than a float does.
// expect: nothing
// launch: copy float32[16]+1=random float32[16]=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void copy(device const packed_float4* x, device packed_float4* y, uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = x[in_grid];
}
