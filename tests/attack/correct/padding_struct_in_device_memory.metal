// Structures with padding in a buffer, copied from one to the other.
// expect: nothing
// launch: k uint8[256]=digits uint8[256]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

struct Pair { float value; uchar index; };
kernel void k(device const Pair* from, device Pair* to, uint i [[thread_position_in_grid]]) {
  Pair p = from[i]; p.index += 1; to[i] = p;
}
