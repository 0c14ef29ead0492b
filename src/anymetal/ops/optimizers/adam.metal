// Adam and AdamW: a launch that counts steps and prepares their numbers, then one a table.
#include "shared/rounding.h"
#include "shared/tables.h"
#include "shared/vectors.h"

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

// What all elements share.
struct Fixed {
  float scale;  // of a gradient
  float rest1;
  float beta2;
  float rest2;
  float eps;
  float l2;
  bool has_l2;
  bool has_largest;
  bool has_master;
};

// Where a parameter and what belongs to it lie. Rows of the states: both moments, then the largest
// second moment, then the float32 parameter.
template <typename T, typename G>
struct Place {
  device T* param;
  device const G* gradient;
  device float* first;
  device float* second;
  device float* largest;
  device float* master;
};

// A step of one element, or of four neighbouring ones.
template <uint width, typename T, typename G>
inline void step_at(uint i, thread const Place<T, G>& at, thread const Prepared& numbers,
                    thread const Fixed& fixed, thread const Rounding& rounding, uint tensor) {
  using W = Width<width>;
  using V = typename W::type;
  const V moment = W::load(at.first + i), square = W::load(at.second + i);
  V value = fixed.has_master ? W::load(at.master + i) : W::load(at.param + i);
  V g = fixed.scale * W::load(at.gradient + i);
  if (fixed.has_l2) g = fma(V(fixed.l2), value, g);  // 0 times infinity is NaN
  const V m = fma(V(fixed.rest1), g - moment, moment);
  const V v = fma(V(fixed.rest2), g * g, fixed.beta2 * square);
  W::store(at.first + i, m);
  W::store(at.second + i, v);
  V top = v;
  if (fixed.has_largest) {
    const V before = W::load(at.largest + i);
    top = select(before, v, v > before || isnan(v));
    W::store(at.largest + i, top);
  }
  const V root = fma(precise::sqrt(top), V(numbers.root_scale), V(fixed.eps));
  value = fma(V(-numbers.step_size), m / root, value * numbers.decay);
  if (fixed.has_master) W::store(at.master + i, value);
  store_rounded(at.param + i, value, rounding, tensor, i);
}

template <typename T, typename G, uint width>
[[kernel]] void adam_step(TABLE_BUFFERS(T, G), device const Prepared* prepared [[buffer(27)]],
                          constant AdamStep& step [[buffer(28)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint in_group [[thread_index_in_threadgroup]],
                          uint size [[threads_per_threadgroup]]) {
  const Chunk chunk = chunk_of(step.table, group);
  const ulong stride = step.strides[chunk.tensor];
  device float* first = OF_TABLE(s, chunk.tensor);
  device float* largest = first + 2 * stride;
  const Place<T, G> at = {OF_TABLE(p, chunk.tensor),
                          OF_TABLE(g, chunk.tensor),
                          first,
                          first + stride,
                          largest,
                          step.amsgrad ? largest + stride : largest};
  const uint tensor = step.places[chunk.tensor];
  const Prepared numbers = prepared[tensor];
  if (numbers.left_out) return;
  const Rounding rounding = step.rounding;
  // Read once: what is stored in the loop might be what `step` points to, for all a compiler knows.
  const Fixed fixed = {step.sign * numbers.inverse_scale,
                       step.rest1,
                       step.beta2,
                       step.rest2,
                       step.eps,
                       step.l2,
                       step.l2 != 0.0f,
                       step.amsgrad != 0,
                       step.master != 0};
  for (uint i = chunk.begin + in_group * width; i < chunk.end; i += size * width)
    step_at<width>(i, at, numbers, fixed, rounding, tensor);
}

TABLE_INSTANCES_OF_WIDTH(adam_step, 1, "")
TABLE_INSTANCES_OF_WIDTH(adam_step, 4, "vec4_")
