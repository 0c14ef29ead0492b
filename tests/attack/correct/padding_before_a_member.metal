// A byte, then padding, then a float.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

struct Entry { bool used; float value; };
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup Entry entries[32];
  Entry mine = {x[i] > 0, x[i]};
  entries[i] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Entry next = entries[(i + 1) % 32];
  out[i] = next.used ? next.value : 0;
}
