// The guard leaves out the last element; the caller says that this tensor is an output.
// expect: unwritten_output error line 8 buffer y index 63 count 1
// launch: square float32[64]=random float32[64]=zeros 64 threads=64 outputs=1
#include <metal_stdlib>
using namespace metal;

kernel void square(device const float* x,
                   device float* y,
                   constant uint& length,
                   uint in_grid [[thread_position_in_grid]]) {
  if (in_grid < length - 1) y[in_grid] = x[in_grid] * x[in_grid];
}
