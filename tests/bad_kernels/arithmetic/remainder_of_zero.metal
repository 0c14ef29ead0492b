// Heads are shared out by a group size that the caller left at zero.
// expect: arithmetic error line 10
// launch: share uint32[8]=zeros 0 threads=8
#include <metal_stdlib>
using namespace metal;

kernel void share(device uint* y,
                  constant uint& group_of_heads,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = in_grid % group_of_heads;
}
