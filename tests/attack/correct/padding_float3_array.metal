// A thread's array of float3 with an index that is known at run time.
// expect: nothing
// launch: k float32[8]=random uint8[8]=digits float32[8]=zeros threads=8 group_size=8
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device const uchar* pick, device float* out, uint i [[thread_position_in_grid]]) {
  float3 corners[4];
  for (uint n = 0; n < 4; ++n) corners[n] = float3(x[i] + n, n, 1);
  float3 v = corners[pick[i] % 4];
  out[i] = length(v);
}
