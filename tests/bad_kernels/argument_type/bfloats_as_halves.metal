// A bfloat16 tensor in a kernel of halves: same size, other numbers.
// expect: argument_type error line 7 buffer x
// launch: add bfloat16[16]=range float16[16]=zeros threads=16
#include <metal_stdlib>
using namespace metal;

kernel void add(device const half4* x,
                device half* y,
                uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = x[in_grid / 4].x + 1.0h;
}
