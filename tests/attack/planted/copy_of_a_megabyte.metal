// expect: out_of_bounds error line 10
// launch: k float32[262400]=zeros threads=2 outputs=none
#include <metal_stdlib>
using namespace metal;

struct Page { float values[262144]; };

kernel void k(device float* x, uint i [[thread_position_in_grid]]) {
  if (i == 1) {
    *(device Page*)(x + 512) = *(device Page*)x;
  }
}
