// A mask of floats where the kernel expects 16-bit integers: all reads stay inside the buffer, and
// none of them is a mask.
// expect: element_size error line 9 buffer mask
// launch: apply float32[16]=random float32[16]=1 float32[16]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

kernel void apply(device const float* x,
                  device const short* mask,
                  device float* y,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = mask[in_grid] != 0 ? x[in_grid] : 0.0f;
}
