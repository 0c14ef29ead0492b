// threads_over_limit, corrected in the launch: threadgroups of 1,024.
// expect: nothing
// launch: scale float32[4096]=random float32[4096]=zeros threads=4096 group_size=1024
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float* x,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = 2.0f * x[in_grid];
}
