// Values in threadgroup memory and their count in device memory, behind one barrier that names only
// the first.
// expect: barrier_flags error line 16 other 14 buffer count
// launch: publish float32[64]=random int32[1]=zeros float32[64]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void publish(device const float* x,
                    device int* count,
                    device float* y,
                    uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float row[64];
  row[in_group] = x[in_group];
  if (in_group == 0) count[0] = 48;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint used = uint(count[0]);
  y[in_group] = in_group < used ? row[used - 1 - in_group] : 0.0f;
}
