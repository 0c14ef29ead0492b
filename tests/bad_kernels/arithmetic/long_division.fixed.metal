// long_division, corrected: a broadcast dimension has coordinate zero.
// expect: nothing
// launch: coordinates int64[3]=8,0,1 int64[3]=zeros 13 threads=3
#include <metal_stdlib>
using namespace metal;

kernel void coordinates(device const long* strides,
                        device long* y,
                        constant long& offset,
                        uint in_grid [[thread_position_in_grid]]) {
  const long stride = strides[in_grid];
  y[in_grid] = stride == 0 ? 0 : offset / stride;
}
