// vector_at_element, corrected: packed vectors need the alignment of one element only.
// expect: nothing
// launch: double_it float32[16]+1=random float32[16]+3=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void double_it(device const packed_float4* x,
                      device packed_float4* y,
                      uint in_grid [[thread_position_in_grid]]) {
  const float4 value = x[in_grid];
  y[in_grid] = 2.0f * value;
}
