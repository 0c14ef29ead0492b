// The kernel says which threadgroups it is written for, and gets others.
// expect: assertion error line 10 count 48
// launch: whole float32[48]=zeros threads=48 group_size=48
#include <metal_stdlib>
using namespace metal;

kernel void whole(device float* y,
                  uint i [[thread_position_in_grid]],
                  uint size [[threads_per_threadgroup]]) {
  assert(size % 32 == 0);
  y[i] = simd_sum(1.0f) * size;
}
