// A table at program scope, looked up with a code it has no entry for.
// expect: out_of_bounds error line 12 index 5
// launch: decode int32[6]=0,1,2,3,5,1 float32[6]=zeros threads=6
#include <metal_stdlib>
using namespace metal;

constant float levels[4] = {-1.0f, -0.25f, 0.25f, 1.0f};

kernel void decode(device const int* codes,
                   device float* y,
                   uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = levels[codes[in_grid]];
}
