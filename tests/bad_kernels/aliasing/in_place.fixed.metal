// One argument that is read and written.
// expect: nothing
// launch: relu float32[40]=random threads=40 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void relu(device float* x, uint in_grid [[thread_position_in_grid]]) {
  x[in_grid] = max(x[in_grid], 0.0f);
}
