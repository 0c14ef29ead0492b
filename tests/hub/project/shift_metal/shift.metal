#include <metal_stdlib>
#include "amount.h"
using namespace metal;

template <typename T>
kernel void shift(device const T* x [[buffer(0)]], device T* y [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  y[i] = x[i] + T(amount);
}

template [[host_name("shift_float")]] kernel void shift<float>(device const float*, device float*,
                                                               uint);
template [[host_name("shift_half")]] kernel void shift<half>(device const half*, device half*,
                                                             uint);
