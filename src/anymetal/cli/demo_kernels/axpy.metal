#include <metal_stdlib>
using namespace metal;

// y = a * x + y. One source for two types: each line at the end makes a kernel with its own name.
template <typename T>
kernel void axpy(device const T* x [[buffer(0)]], device T* y [[buffer(1)]],
                 constant float& a [[buffer(2)]], uint in_grid [[thread_position_in_grid]]) {
  y[in_grid] = T(a * float(x[in_grid]) + float(y[in_grid]));
}

template [[host_name("axpy_float")]] kernel void axpy<float>(device const float*, device float*,
                                                             constant float&, uint);
template [[host_name("axpy_half")]] kernel void axpy<half>(device const half*, device half*,
                                                           constant float&, uint);
