// Every thread that sees a negative value raises the same flag with the same value: harmless on
// every GPU known, but a race all the same.
// expect: race warning line 11 other 11 buffer flag
// launch: any_negative float32[64]=-1 int32[1]=zeros threads=64 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void any_negative(device const float* x,
                         device int* flag,
                         uint in_grid [[thread_position_in_grid]]) {
  if (x[in_grid] < 0.0f) flag[0] = 1;
}
