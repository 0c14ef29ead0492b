// expect: nothing
// launch: k float16[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const half* x, device float* out, uint i [[thread_position_in_grid]]) {
  half3x3 a(x[i]), b(half3(1, 2, 3), half3(4, 5, 6), half3(x[i], 8, 9));
  half3x3 c = a * b * a;
  out[i] = (c * half3(1)).z;
}
