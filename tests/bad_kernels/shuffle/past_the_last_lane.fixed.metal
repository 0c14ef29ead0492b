// The last lane reads from the first.
// expect: nothing
// launch: rotate float32[64]=random float32[64]=zeros threads=64
#include <metal_stdlib>
using namespace metal;

kernel void rotate(device const float* x,
                   device float* y,
                   uint in_grid [[thread_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
  y[in_grid] = simd_shuffle(x[in_grid], ushort((lane + 1) % 32));
}
