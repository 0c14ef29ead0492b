// thread_array, corrected: the window never gets wider than its array.
// expect: nothing
// launch: moving_mean float32[20]=random float32[16]=zeros 5 threads=16 group_size=16
#include <metal_stdlib>
using namespace metal;

kernel void moving_mean(device const float* x,
                        device float* y,
                        constant uint& width,
                        uint in_grid [[thread_position_in_grid]]) {
  float window[4];
  const uint used = min(width, 4u);
  for (uint i = 0; i < used; ++i) window[i] = x[in_grid + i];
  float sum = 0.0f;
  for (uint i = 0; i < used; ++i) sum += window[used - 1 - i] * float(i + 1);
  y[in_grid] = sum / float(used);
}
