// Pairs with three bytes of padding, copied inside a thread's array.
// expect: nothing
// launch: k float32[8]=random float32[8]=zeros threads=8 group_size=8
#include <metal_stdlib>
using namespace metal;

struct Pair { float value; uchar index; };
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  Pair best[4];
  for (uint n = 0; n < 4; ++n) { Pair p; p.value = x[(i + n) % 8]; p.index = uchar(n); best[n] = p; }
  for (uint n = 1; n < 4; ++n) if (best[n].value > best[0].value) { Pair t = best[0]; best[0] = best[n]; best[n] = t; }
  out[i] = best[0].value + best[(i + 1) % 4].index;
}
