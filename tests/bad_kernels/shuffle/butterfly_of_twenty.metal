// A butterfly over a simdgroup of twenty threads: lane 4 adds the value of lane 20, which is not
// there.
// expect: shuffle warning line 13
// launch: sum float32[20]=random float32[20]=zeros threads=20 group_size=20
#include <metal_stdlib>
using namespace metal;

kernel void sum(device const float* x,
                device float* y,
                uint in_grid [[thread_position_in_grid]]) {
  float total = x[in_grid];
  for (ushort k = 16; k > 0; k /= 2)
    total += simd_shuffle_xor(total, k);
  y[in_grid] = total;
}
