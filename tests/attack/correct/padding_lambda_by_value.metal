// A lambda that holds a byte and a float.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  uchar shift = uchar(i); float scale = x[i]; bool odd = i & 1;
  auto f = [shift, scale, odd](float v) { return odd ? v * scale + shift : v; };
  auto g = f;
  out[i] = g(x[i]) + f(1);
}
