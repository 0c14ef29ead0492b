// Vectors that are only copied must be aligned too.
// expect: misaligned warning line 8 buffer x
// launch: copy float32[16]+1=random float32[16]=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void copy(device const float4* x, device float4* y, uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = x[in_grid];
}
