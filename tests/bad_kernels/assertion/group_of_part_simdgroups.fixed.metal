// group_of_part_simdgroups, corrected in the launch: whole simdgroups.
// expect: nothing
// launch: whole float32[64]=zeros threads=64 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void whole(device float* y,
                  uint i [[thread_position_in_grid]],
                  uint size [[threads_per_threadgroup]]) {
  assert(size % 32 == 0);
  y[i] = simd_sum(1.0f) * size;
}
