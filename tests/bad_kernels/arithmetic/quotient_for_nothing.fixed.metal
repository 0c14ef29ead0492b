// quotient_for_nothing, corrected: what nobody uses is not computed.
// expect: nothing
// launch: rows int32[8]=zeros 0 threads=8
#include <metal_stdlib>
using namespace metal;

kernel void rows(device int* y,
                 constant uint& width,
                 uint i [[thread_position_in_grid]]) {
  y[i] = i + 1;
}
