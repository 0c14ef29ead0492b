#include <metal_stdlib>
using namespace metal;

kernel void twice(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = 2 * x[i];
}

kernel void by_group(device const float* x, device float* y, threadgroup float* seen [[threadgroup(0)]],
                     uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  seen[t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = 2 * seen[t];
}

kernel void shifted(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = 2 * x[i + 1];  // one too far
}

struct Table {
  device const float* x;
};

kernel void by_address(constant Table& table, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = 2 * table.x[i];
}
