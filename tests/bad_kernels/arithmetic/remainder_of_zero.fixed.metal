// remainder_of_zero, corrected in the launch: groups of four.
// expect: nothing
// launch: share uint32[8]=zeros 4 threads=8
#include <metal_stdlib>
using namespace metal;

kernel void share(device uint* y,
                  constant uint& group_of_heads,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = in_grid % group_of_heads;
}
