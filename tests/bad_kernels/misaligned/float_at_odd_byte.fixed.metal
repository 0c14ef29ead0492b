// float_at_odd_byte, corrected: the float is put together from its bytes.
// expect: nothing
// launch: unpack uint8[40]=range float32[8]=zeros threads=8
#include <metal_stdlib>
using namespace metal;

kernel void unpack(device const uchar* records,
                   device float* y,
                   uint in_grid [[thread_position_in_grid]]) {
  device const uchar* value = records + 5 * in_grid + 1;
  y[in_grid] = as_type<float>(uchar4(value[0], value[1], value[2], value[3]));
}
