// Set in the first round, used in the next ones.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float best; device const float* where; bool any = false;
  for (uint n = 0; n < 32; n += 4) {
    if (!any || x[n] > best) { best = x[n]; where = x + n; any = true; }
  }
  out[i] = any ? best + where[i % 4] : 0;
}
