// Every thread of a threadgroup writes its own index into one place.
// expect: race error line 8 other 8 buffer winner
// launch: elect int32[1]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void elect(device uint* winner, uint in_group [[thread_index_in_threadgroup]]) {
  winner[0] = in_group + 1;
}
