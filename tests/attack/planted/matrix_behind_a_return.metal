// expect: collective_divergence error line 11
// allow: collective_divergence error line 10
// launch: k float16[64]=random float16[64]=zeros threads=32 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const half* x, device half* out, uint lane [[thread_index_in_simdgroup]]) {
  if (lane > 29) return;
  simdgroup_half8x8 a;
  simdgroup_load(a, x, 8);
  simdgroup_store(a, out, 8);
}
