// What a kernel that only reads can reach: 16 bytes a load, four on their way at once. Words are
// exclusively or-ed, and nothing is written unless that gives one number of 2^32, which is enough
// for a compiler to leave the loads where they are.
#include <metal_stdlib>
using namespace metal;

inline uint all_of(uint4 words) { return (words.x ^ words.y) ^ (words.z ^ words.w); }

kernel void read_all(device const uint4* data [[buffer(0)]], device uint* found [[buffer(1)]],
                     constant uint& vectors [[buffer(2)]], uint in_grid [[thread_position_in_grid]],
                     uint threads [[threads_per_grid]]) {
  constexpr uint loads = 4;
  uint total = 0, index = in_grid;
  for (; index + (loads - 1) * threads < vectors; index += loads * threads) {
    uint4 some[loads];
#pragma unroll
    for (uint i = 0; i < loads; ++i) some[i] = data[index + i * threads];
#pragma unroll
    for (uint i = 0; i < loads; ++i) total ^= all_of(some[i]);
  }
  for (; index < vectors; index += threads) total ^= all_of(data[index]);
  if (total == 0x9e3779b9u) found[0] = total;
}
