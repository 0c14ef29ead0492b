// overflowing_exponential, corrected: the maximum is subtracted.
// expect: nothing
// launch: softmax float32[4]=1,100,3,4 float32[4]=zeros 4 threads=1 nan
#include <metal_stdlib>
using namespace metal;

kernel void softmax(device const float* x, device float* y, constant uint& columns) {
  float highest = x[0];
  for (uint i = 1; i < columns; ++i) highest = max(highest, x[i]);
  float sum = 0.0f;
  for (uint i = 0; i < columns; ++i) {
    const float weight = exp(x[i] - highest);
    y[i] = weight;
    sum += weight;
  }
  for (uint i = 0; i < columns; ++i) y[i] /= sum;
}
