// The largest value falls one bin past the end, and the atomic add follows it there.
// expect: out_of_bounds error line 11 buffer bins index 8
// launch: histogram float32[5]=0,0.3,0.99,1,0.5 int32[8]=zeros threads=5 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void histogram(device const float* x,
                      device atomic_int* bins,
                      uint in_grid [[thread_position_in_grid]]) {
  const uint bin = uint(x[in_grid] * 8.0f);
  atomic_fetch_add_explicit(&bins[bin], 1, memory_order_relaxed);
}
