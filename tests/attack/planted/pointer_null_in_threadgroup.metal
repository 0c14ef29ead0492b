// expect: out_of_bounds error line 10
// launch: k float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float tile[8];
  threadgroup float* p = i < 8 ? nullptr : tile;
  tile[i] = i;
  p[i] = 2; out[i] = tile[i];
}
