// The same in device memory, each simdgroup in a row of its own.
// expect: nothing
// launch: k float32[128]=random float32[128]=zeros threads=128 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void k(device float* x, device float* out, uint n [[thread_position_in_grid]]) {
  float other = x[n ^ 1] + x[n & ~31u];
  simdgroup_barrier(mem_flags::mem_device);
  x[n] = other;
  simdgroup_barrier(mem_flags::mem_device);
  out[n] = x[n ^ 3];
}
