// stencil_edges, corrected: the ends are their own neighbours.
// expect: nothing
// launch: smooth float32[64]=random float32[64]=zeros 64 threads=64 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void smooth(device const float* x,
                   device float* y,
                   constant int& length,
                   uint in_grid [[thread_position_in_grid]]) {
  const int i = int(in_grid);
  const float left = x[max(i - 1, 0)];
  const float right = x[min(i + 1, length - 1)];
  y[i] = 0.25f * left + 0.5f * x[i] + 0.25f * right;
}
