// Ten floats read four at a time: the third vector begins inside the buffer and ends outside.
// expect: out_of_bounds error line 11 buffer x
// launch: sum_of_quads float32[10]=random float32[3]=zeros 10 threads=3
#include <metal_stdlib>
using namespace metal;

kernel void sum_of_quads(device const float* x,
                         device float* y,
                         constant uint& length,
                         uint in_grid [[thread_position_in_grid]]) {
  const float4 values = ((device const float4*)x)[in_grid];
  y[in_grid] = values.x + values.y + values.z + values.w;
}
