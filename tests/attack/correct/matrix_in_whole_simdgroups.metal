// A condition that is the same for all lanes of a simdgroup.
// expect: nothing
// launch: k float32[64]=random float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void k(device const float* x, device float* out, uint s [[simdgroup_index_in_threadgroup]]) {
  if (s == 1) {
    simdgroup_float8x8 a, b;
    simdgroup_load(a, x, 8);
    simdgroup_load(b, x, 8, ulong2(0), true);
    simdgroup_multiply_accumulate(a, a, b, a);
    simdgroup_store(a, out, 8);
  }
}
