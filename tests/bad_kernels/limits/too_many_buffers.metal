// 32 arguments, where a kernel has 31 buffers.
// expect: limits error
// raises: RuntimeError
// launch: gather_first float32[1]=zeros 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22
// launch: 23 24 25 26 27 28 29 30 31 threads=1
#include <metal_stdlib>
using namespace metal;

kernel void gather_first(device float* y [[buffer(0)]],
                         constant int& first [[buffer(1)]],
                         constant int& last [[buffer(30)]]) {
  y[0] = float(first + last);
}
