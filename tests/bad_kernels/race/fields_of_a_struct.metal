// Two threads keep their results in one struct, and in the same field of it.
// expect: race error line 16 other 16 buffer pairs
// launch: collect float32[64]=random float32[64]=zeros threads=64 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

struct Pair {
  float even;
  float odd;
};

kernel void collect(device const float* x,
                    device Pair* pairs,
                    uint in_grid [[thread_position_in_grid]]) {
  device Pair& pair = pairs[in_grid / 2];
  pair.even = x[in_grid];
}
