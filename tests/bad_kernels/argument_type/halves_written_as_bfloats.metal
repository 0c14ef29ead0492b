// The results are bfloats; the tensor for them is float16.
// expect: argument_type error line 8 buffer y
// launch: halve bfloat16[16]=range float16[16]=zeros float32[16]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

// A type that nobody looks at does not matter: `unused` may be anything.
kernel void halve(device const bfloat* x, device bfloat* y, device int* unused,
                  uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = x[in_grid] * bfloat(0.5);
}
