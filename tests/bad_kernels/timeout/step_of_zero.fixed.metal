// step_of_zero, corrected in the launch: the stride is one.
// expect: nothing
// launch: strided_sum float32[16]=random float32[1]=zeros 16 1 threads=1 seconds=10
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
