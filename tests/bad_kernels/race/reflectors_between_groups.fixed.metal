// reflectors_between_groups, corrected: every threadgroup works out the length for itself.
// expect: nothing
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
  const float square = simd_sum(direction * direction);
  if (column == 0 && lane == 0) norm[0] = square;
  const float scale = 2.0f / square;
  const float along = simd_sum(columns[column * 32 + lane] * direction);
  columns[column * 32 + lane] -= scale * along * direction;
}
