#include <metal_stdlib>
using namespace metal;

kernel void fill(device float* out [[buffer(0)]], constant float& value [[buffer(1)]],
                 uint in_grid [[thread_position_in_grid]]) {
  out[in_grid] = value;
}
