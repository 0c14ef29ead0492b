// expect: collective_divergence error line 9
// launch: k float32[64]=random float32[64]=zeros threads=32 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 a;
  simdgroup_load(a, x, 8);
  if (lane != 3) simdgroup_store(a, out, 8);
}
