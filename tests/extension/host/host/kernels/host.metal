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

constant float3 weights [[function_constant(0)]];
constant bool2 on [[function_constant(1)]];
constant short3 first [[function_constant(2)]];
constant short3 second [[function_constant(3)]];
constant ulong2 large [[function_constant(4)]];

// 2 * x where all constants have come.
kernel void by_constants(device const float* x, device float* y,
                         uint i [[thread_position_in_grid]]) {
  const bool right = all(first == short3(-1, 2, -3)) && all(second == short3(4, -5, 6)) &&
                     large.x == 0xfedcba9876543210ul && large.y == 7 && on.x && !on.y;
  y[i] = right ? dot(weights, float3(4, 2, 1)) * x[i] : 0;
}
