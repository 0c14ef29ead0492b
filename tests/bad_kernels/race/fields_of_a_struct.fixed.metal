// fields_of_a_struct, corrected: a field each. Neighbouring fields are no race.
// expect: nothing
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
  if (in_grid % 2 == 0) {
    pair.even = x[in_grid];
  } else {
    pair.odd = x[in_grid];
  }
}
