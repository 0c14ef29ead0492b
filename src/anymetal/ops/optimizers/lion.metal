// Lion: the sign of an interpolated momentum (Chen et al., Symbolic discovery of optimization
// algorithms); one launch a table.
#include "shared/rounding.h"
#include "shared/scaling.h"
#include "shared/tables.h"

struct LionStep {
  Table<TABLE> table;
  uint places[TABLE];   // of its parameters among all of the call
  uint strides[TABLE];  // between rows of its states
  Scaling scaling;
  float rest1;  // 1 - beta1, for the direction
  float rest2;  // 1 - beta2, for the momentum that is kept
  float weight_decay;
  float sign;  // -1 to maximise
  uint master;
  Rounding rounding;
};

// Rows of the states: momentum, then the float32 parameter.
template <typename T, typename G>
[[kernel]] void lion_step(TABLE_BUFFERS(T, G), SCALING_BUFFERS,
                          constant LionStep& step [[buffer(30)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint in_group [[thread_index_in_threadgroup]],
                          uint size [[threads_per_threadgroup]]) {
  if (LEFT_OUT(step.scaling)) return;
  const Chunk chunk = chunk_of(step.table, group);
  device T* param = OF_TABLE(p, chunk.tensor);
  device const G* gradient = OF_TABLE(g, chunk.tensor);
  device float* momentum = OF_TABLE(s, chunk.tensor);
  device float* master = momentum + ulong(step.strides[chunk.tensor]);
  const float rate = RATE(step.scaling);
  const float decay = 1.0f - rate * step.weight_decay;
  const float scale = step.sign * INVERSE_SCALE(step.scaling);
  const uint tensor = step.places[chunk.tensor];
  const Rounding rounding = step.rounding;

  for (uint i = chunk.begin + in_group; i < chunk.end; i += size) {
    float value = step.master ? master[i] : float(param[i]);
    const float g = scale * float(gradient[i]);
    const float m = momentum[i];
    const float direction = fma(step.rest1, g - m, m);
    momentum[i] = fma(step.rest2, g - m, m);
    // Metal's sign(NaN) is 0, which would hide it.
    const float step_sign = isnan(direction) ? direction : sign(direction);
    value = fma(-rate, step_sign, value * decay);
    if (step.master) master[i] = value;
    param[i] = rounded<T>(value, rounding, tensor, i);
  }
}

TABLE_INSTANCES(lion_step)
