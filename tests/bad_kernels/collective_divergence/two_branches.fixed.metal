// two_branches, corrected: one collective for all, on values chosen before.
// expect: nothing
// launch: maxima float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void maxima(device const float* x,
                   device float* y,
                   uint lane [[thread_index_in_simdgroup]]) {
  y[lane] = simd_max(lane % 2 == 0 ? x[lane] : -x[lane]);
}
