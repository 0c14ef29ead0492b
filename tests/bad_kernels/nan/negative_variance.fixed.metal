// negative_variance, corrected: the squares of the differences from the mean.
// expect: nothing
// launch: deviation float32[8]=999.99,1000,1000.02,1000.01,999.98,1000,999.99,1000
// launch: float32[1]=zeros 8 threads=1 nan
#include <metal_stdlib>
using namespace metal;

kernel void deviation(device const float* x, device float* y, constant uint& length) {
  float sum = 0.0f;
  for (uint i = 0; i < length; ++i) sum += x[i];
  const float mean = sum / float(length);
  float squares = 0.0f;
  for (uint i = 0; i < length; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float variance = squares / float(length);
  y[0] = sqrt(variance);
}
