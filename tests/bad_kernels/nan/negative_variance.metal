// Variance as the mean of squares minus the square of the mean: of numbers about 1,000 nothing is
// left but rounding errors, the sum is below zero, and the root is no number (known-bad row 16).
// expect: nan error line 18
// launch: deviation float32[8]=999.99,1000,1000.02,1000.01,999.98,1000,999.99,1000
// launch: float32[1]=zeros 8 threads=1 nan
#include <metal_stdlib>
using namespace metal;

kernel void deviation(device const float* x, device float* y, constant uint& length) {
  float sum = 0.0f;
  float squares = 0.0f;
  for (uint i = 0; i < length; ++i) {
    sum += x[i];
    squares += x[i] * x[i];
  }
  const float mean = sum / float(length);
  const float variance = squares / float(length) - mean * mean;
  y[0] = sqrt(variance);
}
