// kl_loss_mem_none, corrected: the barrier names threadgroup memory.
// expect: nothing
// launch: kl_loss float32[2,64]=random float32[2,64]=random float32[2]=zeros 64
// launch: threads=128 group_size=64
#include <metal_stdlib>
using namespace metal;

kernel void kl_loss(device const float* log_p,
                    device const float* log_q,
                    device float* loss,
                    constant uint& columns,
                    uint row [[threadgroup_position_in_grid]],
                    uint in_group [[thread_index_in_threadgroup]],
                    uint group_size [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]],
                    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  float sum = 0.0f;
  for (uint i = in_group; i < columns; i += group_size) {
    const float target = log_p[row * columns + i];
    sum += exp(target) * (target - log_q[row * columns + i]);
  }
  sum = simd_sum(sum);
  if (lane == 0) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (in_group == 0) {
    float total = 0.0f;
    for (uint i = 0; i < simds; ++i) total += partial[i];
    loss[row] = total;
  }
}
