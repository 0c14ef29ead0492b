// expect: out_of_bounds error line 8
// launch: k float32[4]=zeros threads=4 group_size=4 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  device float* p = nullptr;
  p[0] = 1; out[i] = i;
}
