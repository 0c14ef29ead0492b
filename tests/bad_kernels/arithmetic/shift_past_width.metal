// A mask of as many bits as asked for: 1 shifted by 32 is 1 again, and the mask of 32 bits is 0.
// expect: arithmetic error line 10
// launch: masks uint32[4]=1,8,31,32 uint32[4]=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void masks(device const uint* bits,
                  device uint* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = (1u << bits[in_grid]) - 1u;
}
