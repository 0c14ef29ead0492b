// expect: out_of_bounds error line 11
// allow: race error
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

struct Bin { uint counts[2]; uint total; };
kernel void k(device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup Bin bins[8];
  bins[i].total = 0; bins[i].counts[0] = 1;
  bins[i].counts[i == 7 ? 2 : 1] = 5;
  out[i] = bins[i].total;
}
