// The argmax of a threadgroup: members are written one by one, pairs are copied whole.
// expect: nothing
// launch: k float32[64]=random float32[1]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

struct Pair { float value; uchar index; };
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup Pair best[64];
  best[i].value = x[i]; best[i].index = uchar(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint step = 32; step > 0; step /= 2) {
    if (i < step) { Pair other = best[i + step]; if (other.value > best[i].value) best[i] = other; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (i == 0) out[0] = best[0].index;
}
