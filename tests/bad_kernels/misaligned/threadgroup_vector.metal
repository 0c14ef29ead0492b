// A vector load from threadgroup memory that begins one float after an aligned place.
// expect: misaligned warning line 15 buffer quads
// launch: shifted_sums float32[17]=random float32[4]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void shifted_sums(device const float* x,
                         device float* y,
                         uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 quads[5];
  threadgroup float* row = (threadgroup float*)quads;
  if (lane < 17) row[lane] = x[lane];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane >= 4) return;
  const float4 quad = *(threadgroup float4*)(row + 4 * lane + 1);
  y[lane] = quad.x + quad.y + quad.z + quad.w;
}
