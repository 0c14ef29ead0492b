// Padding inside a member that is a structure itself.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

struct Inner { half a; uchar b; };
struct Outer { Inner inner; float value; Inner more[2]; };
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup Outer all[32];
  Outer o; o.inner.a = half(x[i]); o.inner.b = 1; o.value = 2;
  for (int n = 0; n < 2; ++n) { o.more[n].a = half(n); o.more[n].b = uchar(n); }
  all[i] = o;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Outer p = all[(i + 7) % 32];
  out[i] = p.inner.a + p.value + p.more[i % 2].b;
}
