// Reflections applied to columns, one threadgroup a column: the length of the reflector is worked
// out by the first threadgroup and read by all, with a threadgroup barrier that orders nothing
// between threadgroups (known-bad row 4).
// expect: race error line 21 other 18 buffer norm
// launch: reflect float32[4,32]=random float32[32]=random float32[1]=zeros
// launch: threads=128 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void reflect(device float* columns,
                    device const float* reflector,
                    device float* norm,
                    uint column [[threadgroup_position_in_grid]],
                    uint lane [[thread_index_in_simdgroup]]) {
  const float direction = reflector[lane];
  if (column == 0) {
    const float square = simd_sum(direction * direction);
    if (lane == 0) norm[0] = square;
  }
  threadgroup_barrier(mem_flags::mem_device);
  const float scale = 2.0f / norm[0];
  const float along = simd_sum(columns[column * 32 + lane] * direction);
  columns[column * 32 + lane] -= scale * along * direction;
}
