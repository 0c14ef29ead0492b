// A condition in a function: two differences are below zero.
// expect: assertion error line 8 count 2
// launch: roots float32[4]=0,1,2,3 float32[4]=zeros threads=4
#include <metal_stdlib>
using namespace metal;

inline float root(float x) {
  assert(x >= 0.0f);
  return sqrt(x);
}
kernel void roots(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = root(x[i] - 2.0f);
}
