// The Kullback-Leibler divergence of log-probabilities from a target, element by element.
#include "shared/team.h"

struct Divergence {
  uint elements;
  uint log_target;
  uint is_summed;   // one sum a threadgroup, not a loss each element
  uint scale_step;  // 0: one gradient for all elements, 1: one each
};

// target * (log(target) - x); nothing where the target is zero.
inline float divergence(float x, float target, bool log_target) {
  if (log_target) return exp(target) * (target - x);
  return target > 0.0f ? target * (log(target) - x) : (target == 0.0f ? -target * x : NAN);
}

template <typename T>
[[kernel]] void kl_div(device const T* x [[buffer(0)]], device const T* target [[buffer(1)]],
                       device T* losses [[buffer(2)]], device float* sums [[buffer(3)]],
                       constant Divergence& numbers [[buffer(4)]],
                       uint in_grid [[thread_position_in_grid]], uint all [[threads_per_grid]],
                       uint group [[threadgroup_position_in_grid]],
                       uint in_group [[thread_index_in_threadgroup]],
                       uint threads [[threads_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simd [[simdgroup_index_in_threadgroup]],
                       uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[most_simdgroups];
  float sum = 0.0f;
  for (uint i = in_grid; i < numbers.elements; i += all) {
    const float loss = divergence(float(x[i]), float(target[i]), numbers.log_target);
    sum += loss;
    if (!numbers.is_summed) losses[i] = T(loss);
  }
  const Team team = {in_group, threads, lane, simd, simds};
  const float total = team_sum<false, 0>(sum, team, partial);
  if (numbers.is_summed && in_group == 0) sums[group] = total;
}
INSTANTIATE(kl_div)

template <typename T>
[[kernel]] void kl_div_backward(device const float* gradient [[buffer(0)]],
                                device const T* x [[buffer(1)]],
                                device const T* target [[buffer(2)]], device T* of_x [[buffer(3)]],
                                device T* of_target [[buffer(4)]],
                                constant Divergence& numbers [[buffer(5)]],
                                uint i [[thread_position_in_grid]]) {
  const float scale = gradient[i * numbers.scale_step];
  const float value = float(target[i]), logarithm = numbers.log_target ? value : log(value);
  const float share = numbers.log_target ? exp(value) : value;
  const float slope = logarithm + 1.0f - float(x[i]);
  of_x[i] = T(-share * scale);
  of_target[i] = T(scale * (numbers.log_target ? share * slope : slope));
}
INSTANTIATE(kl_div_backward)
