// Cross entropy that takes the index -100 of an ignored row for an address (known-bad row 13).
// expect: out_of_bounds error line 18 buffer logits count 2
// launch: cross_entropy float32[4,16]=random int32[4]=3,-100,7,-100 float32[4]=zeros 16 threads=4
#include <metal_stdlib>
using namespace metal;

kernel void cross_entropy(device const float* logits,
                          device const int* targets,
                          device float* loss,
                          constant uint& columns,
                          uint row [[thread_position_in_grid]]) {
  device const float* line = logits + row * columns;
  const int target = targets[row];
  float highest = line[0];
  for (uint i = 1; i < columns; ++i) highest = max(highest, line[i]);
  float sum = 0.0f;
  for (uint i = 0; i < columns; ++i) sum += exp(line[i] - highest);
  loss[row] = log(sum) + highest - line[target];
}
