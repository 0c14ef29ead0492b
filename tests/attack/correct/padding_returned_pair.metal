// A function gives a padded structure back.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

struct Best { float value; bool found; };
Best search(device const float* x, uint from) { Best b; b.found = x[from] > 0; b.value = b.found ? x[from] : 0; return b; }
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  Best kept[2] = {search(x, i), search(x, 31 - i)};
  Best better = kept[0].value > kept[1].value ? kept[0] : kept[1];
  out[i] = better.found ? better.value : -1;
}
