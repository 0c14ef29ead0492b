// expect: collective_divergence error line 10
// allow: collective_divergence error line 9
// launch: k float32[64]=random float32[128]=zeros threads=48 group_size=48 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint s [[simdgroup_index_in_threadgroup]]) {
  simdgroup_float8x8 a;
  simdgroup_load(a, x, 8);
  simdgroup_store(a, out + 64 * s, 8);
}
