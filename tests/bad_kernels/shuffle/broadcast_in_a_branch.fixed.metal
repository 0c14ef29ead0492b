// All lanes take part, and those without work drop what they get.
// expect: nothing
// launch: share float32[32]=random float32[32]=zeros 20 threads=32
#include <metal_stdlib>
using namespace metal;

kernel void share(device const float* x,
                  device float* y,
                  constant uint& count,
                  uint in_grid [[thread_position_in_grid]]) {
  float last = simd_broadcast(x[in_grid], 31);
  y[in_grid] = in_grid < count ? last : 0.0f;
}
