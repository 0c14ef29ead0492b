// expect: out_of_bounds error line 9
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  constant float4* weights = nullptr;
  out[i] = 0;
  out[i] = weights[i].x;
}
