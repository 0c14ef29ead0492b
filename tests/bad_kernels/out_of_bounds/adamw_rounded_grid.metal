// AdamW, four floats a thread, on a grid rounded up to whole threadgroups (known-bad row 6): the
// 1,200 parameters end inside the second threadgroup, and 848 floats after them are updated too.
// expect: out_of_bounds error line 21 buffer gradient
// expect: out_of_bounds error line 22 buffer first
// expect: out_of_bounds error line 23 buffer first
// expect: out_of_bounds error line 24 buffer second
// expect: out_of_bounds error line 25 buffer second
// expect: out_of_bounds error line 26 buffer parameter
// launch: adamw float32[1200]=random float32[1200]=random float32[1200]=zeros float32[1200]=zeros
// launch: 300 0.01 threads=512 group_size=256
#include <metal_stdlib>
using namespace metal;

kernel void adamw(device float4* parameter,
                  device const float4* gradient,
                  device float4* first,
                  device float4* second,
                  constant uint& quads,
                  constant float& rate,
                  uint in_grid [[thread_position_in_grid]]) {
  const float4 slope = gradient[in_grid];
  const float4 mean = 0.9f * first[in_grid] + 0.1f * slope;
  first[in_grid] = mean;
  const float4 square = 0.99f * second[in_grid] + 0.01f * slope * slope;
  second[in_grid] = square;
  parameter[in_grid] -= rate * mean / (sqrt(square) + 1e-8f);
}
