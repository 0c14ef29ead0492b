// Adam and AdamW: a launch that counts steps and prepares their numbers, then one a table.
#include "shared/rounding.h"
#include "shared/tables.h"

// What a step needs of one parameter: its own step decides the bias corrections.
struct Prepared {
  float step_size;      // learning rate over the first moment's bias correction
  float root_scale;     // 1 over the root of the second moment's
  float decay;          // what decoupled weight decay leaves of a parameter
  float inverse_scale;  // of a gradient
  uint left_out;        // whether a gradient that is not finite was found
};

struct Counting {
  float lr;
  float log_beta1;
  float log_beta2;
  float weight_decay;
  uint has_lr;
  uint has_scale;
  uint has_found;
};

// 1 - exp(x) for x <= 0, without the cancellation near 0: beta is near 1, and steps start at 1.
inline float one_minus_exp(float x) {
  if (x < -0.5f) return 1.0f - precise::exp(x);
  float sum = 1.0f;
  for (uint i = 10; i > 1; --i) sum = fma(sum, x / float(i), 1.0f);
  return -x * sum;
}

[[kernel]] void count_steps(device float* steps [[buffer(0)]],
                            device Prepared* prepared [[buffer(1)]],
                            device const float* lr [[buffer(2)]],
                            device const float* grad_scale [[buffer(3)]],
                            device const float* found_inf [[buffer(4)]],
                            constant Counting& counting [[buffer(5)]],
                            uint in_grid [[thread_position_in_grid]]) {
  const bool left_out = counting.has_found && found_inf[0] != 0.0f;
  const float step = steps[in_grid] + (left_out ? 0.0f : 1.0f);
  steps[in_grid] = step;
  const float rate = counting.has_lr ? lr[0] : counting.lr;
  Prepared numbers;
  numbers.step_size = rate / one_minus_exp(step * counting.log_beta1);
  numbers.root_scale = 1.0f / precise::sqrt(one_minus_exp(step * counting.log_beta2));
  numbers.decay = 1.0f - rate * counting.weight_decay;
  numbers.inverse_scale = counting.has_scale ? 1.0f / grad_scale[0] : 1.0f;
  numbers.left_out = left_out;
  prepared[in_grid] = numbers;
}

struct AdamStep {
  Table<TABLE> table;
  uint places[TABLE];   // of its parameters among all of the call
  uint strides[TABLE];  // between rows of its states
  float rest1;          // 1 - beta1
  float beta2;
  float rest2;  // 1 - beta2
  float eps;
  float l2;    // weight decay that is added to gradients
  float sign;  // -1 to maximise
  uint amsgrad;
  uint master;
  Rounding rounding;
};

// Rows of the states: both moments, then the largest second moment, then the float32 parameter.
template <typename T, typename G>
[[kernel]] void adam_step(TABLE_BUFFERS(T, G), device const Prepared* prepared [[buffer(27)]],
                          constant AdamStep& step [[buffer(28)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint in_group [[thread_index_in_threadgroup]],
                          uint size [[threads_per_threadgroup]]) {
  const Chunk chunk = chunk_of(step.table, group);
  device T* param = OF_TABLE(p, chunk.tensor);
  device const G* gradient = OF_TABLE(g, chunk.tensor);
  const ulong stride = step.strides[chunk.tensor];
  device float* first = OF_TABLE(s, chunk.tensor);
  device float* second = first + stride;
  device float* largest = second + stride;
  device float* master = step.amsgrad ? largest + stride : largest;
  const uint tensor = step.places[chunk.tensor];
  const Prepared numbers = prepared[tensor];
  if (numbers.left_out) return;
  const float scale = step.sign * numbers.inverse_scale;
  const Rounding rounding = step.rounding;
  // Read once: what is stored in the loop might be what `step` points to, for all a compiler knows.
  const float rest1 = step.rest1, beta2 = step.beta2, rest2 = step.rest2;
  const float eps = step.eps, l2 = step.l2;
  const bool has_l2 = l2 != 0.0f, has_largest = step.amsgrad, has_master = step.master;

  for (uint i = chunk.begin + in_group; i < chunk.end; i += size) {
    float value = has_master ? master[i] : float(param[i]);
    float g = scale * float(gradient[i]);
    if (has_l2) g = fma(l2, value, g);  // 0 times infinity is NaN
    const float m = fma(rest1, g - first[i], first[i]);
    const float v = fma(rest2, g * g, beta2 * second[i]);
    first[i] = m;
    second[i] = v;
    float top = v;
    if (has_largest) {
      top = v > largest[i] || isnan(v) ? v : largest[i];
      largest[i] = top;
    }
    const float root = fma(precise::sqrt(top), numbers.root_scale, eps);
    value = fma(-numbers.step_size, m / root, value * numbers.decay);
    if (has_master) master[i] = value;
    param[i] = rounded<T>(value, rounding, tensor, i);
  }
}

TABLE_INSTANCES(adam_step)
