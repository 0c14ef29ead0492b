// A row reversed in place in device memory: half of the threads read what the others overwrite.
// expect: race error line 8 other 8 buffer x
// launch: reverse float32[64]=random threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device float* x, uint in_group [[thread_index_in_threadgroup]]) {
  x[63 - in_group] = x[in_group];
}
