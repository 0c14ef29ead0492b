// A record of one byte and one float without padding, read as if the float were aligned.
// expect: misaligned error line 11 buffer records
// launch: unpack uint8[40]=range float32[8]=zeros threads=8
#include <metal_stdlib>
using namespace metal;

kernel void unpack(device const uchar* records,
                   device float* y,
                   uint in_grid [[thread_position_in_grid]]) {
  device const uchar* value = records + 5 * in_grid + 1;
  y[in_grid] = *(device const float*)value;
}
