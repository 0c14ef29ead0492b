// Muon's two launches a table: momentum before the matrices are made orthogonal, and the step
// after.
#include "shared/rounding.h"
#include "shared/scaling.h"
#include "shared/tables.h"

struct MuonMomentum {
  Table<TABLE> table;
  uint places[TABLE];
  uint strides[TABLE];
  Scaling scaling;
  float rest;  // 1 - momentum
  uint nesterov;
};

// The first row of the states is momentum. What is written is the matrix to be made orthogonal.
template <typename T, typename G>
[[kernel]] void muon_momentum(TABLE_BUFFERS(T, G), SCALING_BUFFERS,
                              constant MuonMomentum& step [[buffer(30)]],
                              uint group [[threadgroup_position_in_grid]],
                              uint in_group [[thread_index_in_threadgroup]],
                              uint size [[threads_per_threadgroup]]) {
  if (LEFT_OUT(step.scaling)) return;
  const Chunk chunk = chunk_of(step.table, group);
  device T* update = OF_TABLE(p, chunk.tensor);
  device const G* gradient = OF_TABLE(g, chunk.tensor);
  device float* momentum = OF_TABLE(s, chunk.tensor);
  const float scale = INVERSE_SCALE(step.scaling);
  for (uint i = chunk.begin + in_group; i < chunk.end; i += size) {
    const float g = scale * float(gradient[i]);
    const float m = fma(step.rest, g - momentum[i], momentum[i]);
    momentum[i] = m;
    update[i] = T(step.nesterov ? fma(-step.rest, m - g, m) : m);
  }
}

struct MuonStep {
  Table<TABLE> table;
  uint places[TABLE];
  uint strides[TABLE];
  Scaling scaling;
  float factors[TABLE];  // of the learning rate, by the shape of a matrix
  float weight_decay;
  uint master;
  Rounding rounding;
};

// The second row of the states is the float32 parameter.
template <typename T, typename G>
[[kernel]] void muon_step(TABLE_BUFFERS(T, G), SCALING_BUFFERS,
                          constant MuonStep& step [[buffer(30)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint in_group [[thread_index_in_threadgroup]],
                          uint size [[threads_per_threadgroup]]) {
  if (LEFT_OUT(step.scaling)) return;
  const Chunk chunk = chunk_of(step.table, group);
  device T* param = OF_TABLE(p, chunk.tensor);
  device const G* update = OF_TABLE(g, chunk.tensor);
  device float* master = OF_TABLE(s, chunk.tensor) + ulong(step.strides[chunk.tensor]);
  const float rate = RATE(step.scaling);
  const float decay = 1.0f - rate * step.weight_decay;
  const float factor = rate * step.factors[chunk.tensor];
  const uint tensor = step.places[chunk.tensor];
  const Rounding rounding = step.rounding;
  for (uint i = chunk.begin + in_group; i < chunk.end; i += size) {
    float value = step.master ? master[i] : float(param[i]);
    value = fma(-factor, float(update[i]), value * decay);
    if (step.master) master[i] = value;
    param[i] = rounded<T>(value, rounding, tensor, i);
  }
}

// Updates are bfloat, whatever the parameters are.
TABLE_INSTANCE(muon_momentum, bfloat, float, "float")
TABLE_INSTANCE(muon_momentum, bfloat, half, "half")
TABLE_INSTANCE(muon_momentum, bfloat, bfloat, "bfloat")
TABLE_INSTANCE(muon_step, float, bfloat, "float")
TABLE_INSTANCE(muon_step, half, bfloat, "half")
TABLE_INSTANCE(muon_step, bfloat, bfloat, "bfloat")
