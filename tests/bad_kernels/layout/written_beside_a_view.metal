// Writes to half of the columns reach the other half, which belongs to somebody else.
// expect: layout error line 8 buffer y index 4
// launch: fill float32[4,8].cols=zeros 3.0 outputs=none threads=16
#include <metal_stdlib>
using namespace metal;

kernel void fill(device float* y, constant float& value, uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = value;
}
