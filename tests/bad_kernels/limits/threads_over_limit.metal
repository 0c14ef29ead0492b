// A threadgroup of 2,048 threads; Apple GPUs run at most 1,024.
// expect: limits error
// raises: ValueError
// launch: scale float32[4096]=random float32[4096]=zeros threads=4096 group_size=2048
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float* x,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = 2.0f * x[in_grid];
}
