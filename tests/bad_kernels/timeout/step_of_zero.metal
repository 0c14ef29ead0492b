// A strided sum whose stride the caller left at zero.
// expect: timeout error line 7
// launch: strided_sum float32[16]=random float32[1]=zeros 16 0 threads=1 seconds=0.5
#include <metal_stdlib>
using namespace metal;

kernel void strided_sum(device const float* x,
                        device float* y,
                        constant uint& length,
                        constant uint& stride) {
  float sum = 0.0f;
  for (uint i = 0; i < length; i += stride) {
    sum += x[i];
    y[0] = sum;
  }
}
