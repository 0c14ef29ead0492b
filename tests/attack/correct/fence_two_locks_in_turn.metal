// A value moves from one lock's data to the other's.
// expect: nothing
// launch: k float32[64]=random float32[2]=zeros int32[2]=zeros threads=16 group_size=1 outputs=none
#include <metal_stdlib>
using namespace metal;

void acquire(device atomic_int* lock) {
  while (atomic_exchange_explicit(lock, 1, memory_order_relaxed)) {}
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
}
void release(device atomic_int* lock) {
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  atomic_store_explicit(lock, 0, memory_order_relaxed);
}
kernel void k(device const float* x, device float* sums, device atomic_int* locks, uint g [[thread_position_in_grid]]) {
  acquire(&locks[0]); float before = sums[0]; sums[0] = x[g]; release(&locks[0]);
  acquire(&locks[1]); sums[1] += before; release(&locks[1]);
}
