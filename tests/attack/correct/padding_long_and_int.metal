// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

struct Key { long id; int weight; };
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup Key keys[32];
  keys[i].id = i; keys[i].weight = int(i) * 2;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Key a = keys[i], b = keys[(i + 1) % 32];
  Key c = a.weight > b.weight ? a : b;
  out[i] = float(c.id) + x[i];
}
