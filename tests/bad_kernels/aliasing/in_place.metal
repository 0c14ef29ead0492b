// In place: each thread reads and writes its own element, but through two arguments.
// expect: aliasing warning line 10 other 10 buffer y index 0
// launch: relu float32[40]=random &0 threads=40 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void relu(device const float* x,
                 device float* y,
                 uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = max(x[in_grid], 0.0f);
}
