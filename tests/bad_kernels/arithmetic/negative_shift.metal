// A fixed-point exponent of either sign is used as the count of a right shift.
// expect: arithmetic error line 12
// launch: scale_fixed int32[4]=64,64,64,64 int32[4]=2,0,-3,5 int32[4]=zeros threads=4
#include <metal_stdlib>
using namespace metal;

kernel void scale_fixed(device const int* x,
                        device const int* exponents,
                        device int* y,
                        uint in_grid [[thread_position_in_grid]]) {
  const int exponent = exponents[in_grid];
  y[in_grid] = x[in_grid] >> exponent;
}
