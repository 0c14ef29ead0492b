// Vectors of four floats over a tensor of halves.
// expect: element_size error line 7 buffer x
// launch: sum_of_quads float16[32]=random float32[4]=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void sum_of_quads(device const float4* x,
                         device float* y,
                         uint in_grid [[thread_position_in_grid]]) {
  const float4 value = float4(x[in_grid]);
  y[in_grid] = value.x + value.y + value.z + value.w;
}
