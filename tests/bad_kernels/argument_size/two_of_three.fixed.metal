// All three numbers.
// expect: nothing
// launch: at float32[16]=random float32[16]=zeros [4,4,1] casts=int32 threads=16
#include <metal_stdlib>
using namespace metal;

kernel void at(device const float* x,
               device float* y,
               constant uint3& size,
               uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = x[in_grid] * float(size.x + size.y + size.z);
}
