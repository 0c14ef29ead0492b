// expect: out_of_bounds error line 9
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

struct Inner { short v[2]; }; struct Outer { Inner a[2]; Inner b; };
kernel void k(device float* out, uint i [[thread_position_in_grid]]) {
  Outer o = {};
  o.a[i % 2].v[i % 3] = 7; out[i] = o.b.v[0];
}
