// ignored_target, corrected: an ignored row has no loss and reads nothing.
// expect: nothing
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
  if (target < 0) {
    loss[row] = 0.0f;
    return;
  }
  float highest = line[0];
  for (uint i = 1; i < columns; ++i) highest = max(highest, line[i]);
  float sum = 0.0f;
  for (uint i = 0; i < columns; ++i) sum += exp(line[i] - highest);
  loss[row] = log(sum) + highest - line[target];
}
