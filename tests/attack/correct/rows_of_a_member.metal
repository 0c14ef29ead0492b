// Arrays inside of structures, every element of them.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

struct Taps { float weights[3]; int offsets[3]; };
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  Taps taps;
  for (int n = 0; n < 3; ++n) { taps.weights[n] = 1.0f / (n + 1); taps.offsets[n] = n - 1; }
  float sum = 0;
  for (int n = 0; n < 3; ++n) sum += taps.weights[n] * x[clamp(int(i) + taps.offsets[n], 0, 31)];
  out[i] = sum;
}
