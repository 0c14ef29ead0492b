// A lambda with captures, passed to a template by value.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

template <typename F> float apply(F f, float x, int n) { for (int j = 0; j < n; ++j) x = f(x); return x; }
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  half a = half(x[i]); int b = int(i); char c = 3;
  out[i] = apply([=](float v) { return v * a + b - c; }, x[i], 3);
}
