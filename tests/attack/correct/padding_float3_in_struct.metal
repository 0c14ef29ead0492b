// The fourth float of a float3 belongs to nobody.
// expect: nothing
// launch: k float32[32]=random float32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

struct Body { float3 place; float mass; };
kernel void k(device const float* x, device float* out, uint i [[thread_position_in_threadgroup]]) {
  threadgroup Body bodies[32];
  Body own; own.place = float3(x[i], 1, 2); own.mass = 3;
  bodies[i] = own;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Body other = bodies[31 - i];
  out[i] = dot(other.place, own.place) * other.mass;
}
