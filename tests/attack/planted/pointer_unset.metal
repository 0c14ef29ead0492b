// expect: uninitialised error line 9
// allow: out_of_bounds error
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  device float* p;
  *p = 3; out[i] = 1;
}
