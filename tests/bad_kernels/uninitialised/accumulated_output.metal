// The kernel adds to an output that the caller declares to have no contents yet.
// expect: uninitialised error line 10 buffer y
// launch: scale float32[32]=random float32[32]=random threads=32 outputs=1
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float* x,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] += 2.0f * x[in_grid];
}
