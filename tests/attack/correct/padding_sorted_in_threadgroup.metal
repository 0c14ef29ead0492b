// A bitonic step over shared pairs, by a function that takes pointers.
// expect: nothing
// launch: k float32[64]=random float32[64]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

struct Pair { float value; ushort index; };
void order(threadgroup Pair* a, threadgroup Pair* b) { if (a->value > b->value) { Pair t = *a; *a = *b; *b = t; } }
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup Pair all[64];
  for (uint n = i; n < 64; n += 32) { all[n].value = x[n]; all[n].index = ushort(n); }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  order(&all[2 * i], &all[2 * i + 1]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint n = i; n < 64; n += 32) out[n] = all[n].index;
}
