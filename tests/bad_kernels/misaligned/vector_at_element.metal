// Vectors of four floats over a slice that starts at its tensor's second element: Apple GPUs load
// them, but nothing in the language says so.
// expect: misaligned warning line 12 buffer x
// expect: misaligned warning line 13 buffer y
// launch: double_it float32[16]+1=random float32[16]+3=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void double_it(device const float4* x,
                      device float4* y,
                      uint in_grid [[thread_position_in_grid]]) {
  const float4 value = x[in_grid];
  y[in_grid] = 2.0f * value;
}
