// A bias that may be missing.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

float biased(float v, device const float* bias, uint i) { return bias ? v + bias[i] : v; }
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  device const float* none = nullptr;
  out[i] = biased(x[i], i < 16 ? x : none, i);
}
