// torch's indices have 64 bits, the kernel's 32: every second index is the upper half of another.
// expect: element_size error line 8 buffer indices
// launch: gather float32[8]=random int64[4]=3,0,7,2 float32[4]=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void gather(device const float* x,
                   device const int* indices,
                   device float* y,
                   uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = x[indices[in_grid]];
}
