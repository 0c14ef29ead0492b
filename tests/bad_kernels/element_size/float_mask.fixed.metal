// float_mask, corrected: a char pointer may look at a tensor of any type, byte by byte.
// expect: nothing
// launch: apply float32[16]=random float32[16]=1 float32[16]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

kernel void apply(device const float* x,
                  device const char* mask,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = ((device const float*)mask)[in_grid] != 0.0f ? x[in_grid] : 0.0f;
}
