// SiLU over a flat array: y = x / (1 + exp(-x)), four values a thread.
#include <metal_stdlib>
using namespace metal;

kernel void silu(device const float4* x [[buffer(0)]], device float4* y [[buffer(1)]],
                 uint in_grid [[thread_position_in_grid]]) {
  const float4 value = x[in_grid];
  y[in_grid] = value / (1.0f + exp(-value));
}
