// partly_loaded_tile, corrected: what does not exist is zero.
// expect: nothing
// launch: tile_sums float32[100]=random float32[2]=zeros 100 threads=128 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void tile_sums(device const float* x,
                      device float* y,
                      constant uint& length,
                      uint group [[threadgroup_position_in_grid]],
                      uint in_grid [[thread_position_in_grid]],
                      uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float tile[64];
  tile[in_group] = in_grid < length ? x[in_grid] : 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (in_group == 0) {
    float sum = 0.0f;
    for (uint i = 0; i < 64; ++i) sum += tile[i];
    y[group] = sum;
  }
}
