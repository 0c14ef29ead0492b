// expect: uninitialised error line 11
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32 outputs=none
#include <metal_stdlib>
using namespace metal;

struct Pair { float value; uchar index; };
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup Pair all[32];
  all[i].value = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Pair p = all[31 - i];
  out[i] = p.value + p.index;
}
