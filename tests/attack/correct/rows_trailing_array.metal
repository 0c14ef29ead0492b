// An array of one at the end of a structure stands for as many as the buffer holds.
// expect: nothing
// launch: k float32[33]=range float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

struct Message { float count; float values[1]; };
kernel void k(device const Message& m, device float* out, uint i [[thread_position_in_grid]]) {
  if (i < uint(m.count) + 32) out[i] = m.values[i];
}
