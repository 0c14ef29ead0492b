// The last lane, whose value all others want, is not in the branch.
// expect: shuffle warning line 14
// expect: collective_divergence warning line 14
// launch: share float32[32]=random float32[32]=zeros 20 threads=32
#include <metal_stdlib>
using namespace metal;

kernel void share(device const float* x,
                  device float* y,
                  constant uint& count,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = 0.0f;
  if (in_grid < count)
    y[in_grid] = simd_broadcast(x[in_grid], 31);
}
