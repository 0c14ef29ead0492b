#include <metal_stdlib>
#include "../include/amount.h"
using namespace metal;

kernel void shift_reversed(device const float* x, device float* y, constant uint& size,
                           uint i [[thread_position_in_grid]]) {
  y[i] = x[size - i] + amount;
}
