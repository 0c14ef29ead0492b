// vector_over_the_end, corrected: the tail is read one float at a time.
// expect: nothing
// launch: sum_of_quads float32[10]=random float32[3]=zeros 10 threads=3
#include <metal_stdlib>
using namespace metal;

kernel void sum_of_quads(device const float* x,
                         device float* y,
                         constant uint& length,
                         uint in_grid [[thread_position_in_grid]]) {
  float4 values = 0.0f;
  if (4 * in_grid + 4 <= length) {
    values = ((device const float4*)x)[in_grid];
  } else {
    for (uint i = 0; 4 * in_grid + i < length; ++i) values[i] = x[4 * in_grid + i];
  }
  y[in_grid] = values.x + values.y + values.z + values.w;
}
