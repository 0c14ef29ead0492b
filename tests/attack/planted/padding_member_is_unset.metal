// expect: uninitialised error line 11
// launch: k float32[8]=random float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

struct Pair { float value; uchar index; };
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  Pair all[4];
  for (uint n = 0; n < 4; ++n) all[n].value = x[n];
  // nobody sets the index
  out[i] = all[i % 4].value + all[(i + 1) % 4].index;
}
