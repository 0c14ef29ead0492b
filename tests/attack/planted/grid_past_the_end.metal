// expect: out_of_bounds error line 7
// launch: k float32[8]+0=zeros threads=9 group_size=9 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  out[i] = i;
}
