// Strides of 64 bits, one of them zero for a broadcast dimension.
// expect: arithmetic error line 11
// launch: coordinates int64[3]=8,0,1 int64[3]=zeros 13 threads=3
#include <metal_stdlib>
using namespace metal;

kernel void coordinates(device const long* strides,
                        device long* y,
                        constant long& offset,
                        uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = offset / strides[in_grid];
}
