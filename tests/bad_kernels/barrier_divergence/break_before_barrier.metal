// A search in rounds: a thread that has found its value breaks out and waits at the last barrier,
// while the others go on to the barrier of the next round.
// expect: barrier_divergence error line 26 other 24
// allow: barrier_divergence warning line 18
// allow: barrier_divergence warning line 24
// allow: barrier_divergence warning line 26
// launch: search float32[4]=1,2,3,4 int32[32]=zeros threads=32 group_size=32
#include <metal_stdlib>
using namespace metal;

kernel void search(device const float* x,
                   device int* y,
                   uint in_group [[thread_index_in_threadgroup]]) {
  threadgroup float current;
  int found = -1;
  for (int i = 0; i < 4; ++i) {
    if (in_group == 0) current = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float value = current;
    if (value == float(in_group % 4 + 1)) {
      found = i;
      break;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[in_group] = found;
}
