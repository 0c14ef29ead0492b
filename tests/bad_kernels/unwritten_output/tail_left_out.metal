// Four floats a thread, and as many threads as there are full vectors: the tail is left out.
// expect: unwritten_output warning line 8 buffer y index 8 count 2
// launch: negate float32[10]=random float32[10]=zeros 10 threads=2
#include <metal_stdlib>
using namespace metal;

kernel void negate(device const float* x,
                   device float* y,
                   constant uint& length,
                   uint in_grid [[thread_position_in_grid]]) {
  ((device float4*)y)[in_grid] = -((device const float4*)x)[in_grid];
}
