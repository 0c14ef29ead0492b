// Softmax without subtracting the maximum: the exponential of 100 is more than a float holds.
// expect: nan error line 10
// launch: softmax float32[4]=1,100,3,4 float32[4]=zeros 4 threads=1 nan
#include <metal_stdlib>
using namespace metal;

kernel void softmax(device const float* x, device float* y, constant uint& columns) {
  float sum = 0.0f;
  for (uint i = 0; i < columns; ++i) {
    const float weight = exp(x[i]);
    y[i] = weight;
    sum += weight;
  }
  for (uint i = 0; i < columns; ++i) y[i] /= sum;
}
