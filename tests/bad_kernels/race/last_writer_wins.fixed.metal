// last_writer_wins, corrected: the largest index wins, whatever the order.
// expect: nothing
// launch: elect int32[1]=zeros threads=64 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void elect(device atomic_uint* winner, uint in_group [[thread_index_in_threadgroup]]) {
  atomic_fetch_max_explicit(winner, in_group + 1, memory_order_relaxed);
}
