// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float row[4] = {x[i], 1, 2, 3};
  float sum = 0;
  for (thread float* p = row; p != row + 4; ++p) sum += *p;
  out[i] = sum;
}
