// Out parameters set the variables.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

void parts(float v, thread float& low, thread int* high) { *high = int(floor(v)); low = v - *high; }
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float low, sine, cosine; int high;
  parts(x[i], low, &high);
  sine = sincos(x[i], cosine);
  out[i] = low + high + sine + cosine;
}
