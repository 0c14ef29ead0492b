// collective_is_no_barrier, corrected: the barrier is written out.
// expect: nothing
// launch: difference float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void difference(device const float* x,
                       device float* y,
                       uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float row[32];
  row[lane] = x[lane];
  const float mean = simd_sum(x[lane]) / 32.0f;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  y[lane] = row[(lane + 1) % 32] - mean;
}
