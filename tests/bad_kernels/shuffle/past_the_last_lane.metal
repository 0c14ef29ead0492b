// The last lane reads from the one behind it, which does not exist.
// expect: shuffle error line 11 count 2
// launch: rotate float32[64]=random float32[64]=zeros threads=64
#include <metal_stdlib>
using namespace metal;

kernel void rotate(device const float* x,
                   device float* y,
                   uint in_grid [[thread_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
  y[in_grid] = simd_shuffle(x[in_grid], ushort(lane + 1));
}
