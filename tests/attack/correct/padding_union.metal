// One member of a union is written and the union is copied.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

union Word { float value; uchar small; };
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  Word words[2]; words[0].small = 3; words[1].value = x[i];
  Word w = words[i % 2];
  out[i] = i % 2 ? w.value : w.small;
}
