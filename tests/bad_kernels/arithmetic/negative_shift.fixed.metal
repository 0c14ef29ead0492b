// negative_shift, corrected: negative exponents shift to the left.
// expect: nothing
// launch: scale_fixed int32[4]=64,64,64,64 int32[4]=2,0,-3,5 int32[4]=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void scale_fixed(device const int* x,
                        device const int* exponents,
                        device int* y,
                        uint in_grid [[thread_position_in_grid]]) {
  const int exponent = exponents[in_grid];
  y[in_grid] = exponent >= 0 ? x[in_grid] >> exponent : x[in_grid] << -exponent;
}
