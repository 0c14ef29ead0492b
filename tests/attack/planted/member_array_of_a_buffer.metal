// expect: out_of_bounds error line 9
// launch: k float32[8]=random float32[8]=zeros threads=8 group_size=8 outputs=none
#include <metal_stdlib>
using namespace metal;

struct Filter { float taps[4]; float gains[4]; };
kernel void k(constant Filter& f, device float* out, uint i [[thread_position_in_grid]]) {
  uint n = i;
  out[i] = f.taps[n];
}
