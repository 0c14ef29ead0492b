// The function that knows who is there.
// expect: nothing
// launch: sum float32[20]=random float32[20]=zeros threads=20 group_size=20
#include <metal_stdlib>
using namespace metal;

kernel void sum(device const float* x,
                device float* y,
                uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = simd_sum(x[in_grid]);
}
