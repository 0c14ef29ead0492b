// The launch gives 128 bytes of threadgroup memory, the kernel uses a float for each of 64 threads.
// expect: out_of_bounds error line 12 buffer row index 32
// expect: out_of_bounds error line 14 buffer row index 33
// launch: reverse float32[64]=random float32[64]=zeros threads=64 group_size=64 memory=128
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* x,
                    device float* y,
                    threadgroup float* row [[threadgroup(0)]],
                    uint in_group [[thread_index_in_threadgroup]]) {
  row[in_group] = x[in_group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = row[in_group ^ 1];
}
