// long_indices, corrected: the kernel takes 64-bit indices.
// expect: nothing
// launch: gather float32[8]=random int64[4]=3,0,7,2 float32[4]=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void gather(device const float* x,
                   device const long* indices,
                   device float* y,
                   uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = x[indices[in_grid]];
}
