// SGD with momentum, dampening and Nesterov's form; one launch a table.
#include "shared/rounding.h"
#include "shared/scaling.h"
#include "shared/tables.h"

struct SgdStep {
  Table<TABLE> table;
  uint places[TABLE];   // of its parameters among all of the call
  uint strides[TABLE];  // between rows of its states
  Scaling scaling;
  float weight_decay;
  float momentum;
  float rest;  // 1 - dampening
  float sign;  // -1 to maximise
  uint has_momentum;
  uint nesterov;
  uint first;  // the momentum is the gradient itself
  uint master;
  Rounding rounding;
};

// Rows of the states: momentum, where there is one, then the float32 parameter.
template <typename T, typename G>
[[kernel]] void sgd_step(TABLE_BUFFERS(T, G), SCALING_BUFFERS,
                         constant SgdStep& step [[buffer(30)]],
                         uint group [[threadgroup_position_in_grid]],
                         uint in_group [[thread_index_in_threadgroup]],
                         uint size [[threads_per_threadgroup]]) {
  if (LEFT_OUT(step.scaling)) return;
  const Chunk chunk = chunk_of(step.table, group);
  device T* param = OF_TABLE(p, chunk.tensor);
  device const G* gradient = OF_TABLE(g, chunk.tensor);
  device float* momentum = OF_TABLE(s, chunk.tensor);
  device float* master =
      step.has_momentum ? momentum + ulong(step.strides[chunk.tensor]) : momentum;
  const float rate = RATE(step.scaling);
  const float scale = step.sign * INVERSE_SCALE(step.scaling);
  const uint tensor = step.places[chunk.tensor];
  const Rounding rounding = step.rounding;

  for (uint i = chunk.begin + in_group; i < chunk.end; i += size) {
    float value = step.master ? master[i] : float(param[i]);
    float g = scale * float(gradient[i]);
    if (step.weight_decay != 0.0f) g = fma(step.weight_decay, value, g);  // 0 times infinity is NaN
    float update = g;
    if (step.has_momentum) {
      const float m = step.first ? g : fma(step.rest, g, step.momentum * momentum[i]);
      momentum[i] = m;
      update = step.nesterov ? fma(step.momentum, m, g) : m;
    }
    value = fma(-rate, update, value);
    if (step.master) master[i] = value;
    param[i] = rounded<T>(value, rounding, tensor, i);
  }
}

TABLE_INSTANCES(sgd_step)
