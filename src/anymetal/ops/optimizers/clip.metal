// Clipping of gradients by the norm of all of them: a launch a table that reduces, and one that
// scales. No number comes to the host between them: each threadgroup of the second reduces what
// those of the first have left.
#include "shared/tables.h"
#include "shared/vectors.h"

// Two of Metal's 31 buffers are for partial results and the norm, one for numbers.
constant constexpr uint GRADIENTS = 28;

constant constexpr uint LARGEST = 0;  // the norm of order infinity
constant constexpr uint SUM = 1;
constant constexpr uint SQUARES = 2;
constant constexpr uint POWERS = 3;

#define GRADIENT_BUFFERS(G)                                                                     \
  device G *g0 [[buffer(0)]], device G *g1 [[buffer(1)]], device G *g2 [[buffer(2)]],           \
      device G *g3 [[buffer(3)]], device G *g4 [[buffer(4)]], device G *g5 [[buffer(5)]],       \
      device G *g6 [[buffer(6)]], device G *g7 [[buffer(7)]], device G *g8 [[buffer(8)]],       \
      device G *g9 [[buffer(9)]], device G *g10 [[buffer(10)]], device G *g11 [[buffer(11)]],   \
      device G *g12 [[buffer(12)]], device G *g13 [[buffer(13)]], device G *g14 [[buffer(14)]], \
      device G *g15 [[buffer(15)]], device G *g16 [[buffer(16)]], device G *g17 [[buffer(17)]], \
      device G *g18 [[buffer(18)]], device G *g19 [[buffer(19)]], device G *g20 [[buffer(20)]], \
      device G *g21 [[buffer(21)]], device G *g22 [[buffer(22)]], device G *g23 [[buffer(23)]], \
      device G *g24 [[buffer(24)]], device G *g25 [[buffer(25)]], device G *g26 [[buffer(26)]], \
      device G *g27 [[buffer(27)]]

// All threads of a threadgroup choose the same.
#define OF_GRADIENTS(tensor) \
  ((tensor) == 0    ? g0     \
   : (tensor) == 1  ? g1     \
   : (tensor) == 2  ? g2     \
   : (tensor) == 3  ? g3     \
   : (tensor) == 4  ? g4     \
   : (tensor) == 5  ? g5     \
   : (tensor) == 6  ? g6     \
   : (tensor) == 7  ? g7     \
   : (tensor) == 8  ? g8     \
   : (tensor) == 9  ? g9     \
   : (tensor) == 10 ? g10    \
   : (tensor) == 11 ? g11    \
   : (tensor) == 12 ? g12    \
   : (tensor) == 13 ? g13    \
   : (tensor) == 14 ? g14    \
   : (tensor) == 15 ? g15    \
   : (tensor) == 16 ? g16    \
   : (tensor) == 17 ? g17    \
   : (tensor) == 18 ? g18    \
   : (tensor) == 19 ? g19    \
   : (tensor) == 20 ? g20    \
   : (tensor) == 21 ? g21    \
   : (tensor) == 22 ? g22    \
   : (tensor) == 23 ? g23    \
   : (tensor) == 24 ? g24    \
   : (tensor) == 25 ? g25    \
   : (tensor) == 26 ? g26    \
                    : g27)

struct Clipping {
  Table<GRADIENTS> table;
  uint kind;
  float order;
  float max_norm;
  uint groups;  // threadgroups that reduce this table
  uint count;   // of the results of all tables
  uint writes;  // whether this launch writes the norm
};

// A partial result: a compensated sum, or the largest magnitude as bits, in whose order NaN is
// last.
struct Partial {
  CompensatedSum<float> sum;
  uint largest;

  void add(float value, uint kind, float order) {
    const float size = abs(value);
    if (kind == LARGEST) {
      largest = max(largest, as_type<uint>(size));
    } else {
      sum.add(kind == SUM ? size : kind == SQUARES ? size * size : precise::pow(size, order));
    }
  }

  void join(float other, uint kind) {
    if (kind == LARGEST) {
      largest = max(largest, as_type<uint>(other));
    } else {
      sum.add(other);
    }
  }
};

// The result of a whole threadgroup, for every thread of it.
inline float joined(thread const Partial &partial, uint kind, threadgroup float *scratch, uint lane,
                    uint simd, uint simds) {
  const float sum = simd_sum(partial.sum.total + partial.sum.rest);
  const uint largest = simd_max(partial.largest);
  if (lane == 0) scratch[simd] = kind == LARGEST ? as_type<float>(largest) : sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float other = lane < simds ? scratch[lane] : 0.0f;
  return kind == LARGEST ? as_type<float>(simd_max(as_type<uint>(other))) : simd_sum(other);
}

template <typename G>
[[kernel]] void reduce_gradients(GRADIENT_BUFFERS(const G), device float *partials [[buffer(28)]],
                                 constant Clipping &clipping [[buffer(29)]],
                                 uint group [[threadgroup_position_in_grid]],
                                 uint in_group [[thread_index_in_threadgroup]],
                                 uint size [[threads_per_threadgroup]],
                                 uint lane [[thread_index_in_simdgroup]],
                                 uint simd [[simdgroup_index_in_threadgroup]],
                                 uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float scratch[32];
  Partial partial = {{0.0f, 0.0f}, 0};
  const uint chunks = clipping.table.starts[GRADIENTS];
  for (uint index = group; index < chunks; index += clipping.groups) {
    const Chunk chunk = chunk_of(clipping.table, index);
    device const G *gradient = OF_GRADIENTS(chunk.tensor);
    for (uint i = chunk.begin + in_group; i < chunk.end; i += size)
      partial.add(float(gradient[i]), clipping.kind, clipping.order);
  }
  const float result = joined(partial, clipping.kind, scratch, lane, simd, simds);
  if (in_group == 0) partials[group] = result;
}

template <typename G>
[[kernel]] void clip_gradients(
    GRADIENT_BUFFERS(G), device const float *partials [[buffer(28)]],
    device float *norm [[buffer(29)]], constant Clipping &clipping [[buffer(30)]],
    uint group [[threadgroup_position_in_grid]], uint in_group [[thread_index_in_threadgroup]],
    uint size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float scratch[32];
  Partial partial = {{0.0f, 0.0f}, 0};
  for (uint i = in_group; i < clipping.count; i += size) partial.join(partials[i], clipping.kind);
  float total = joined(partial, clipping.kind, scratch, lane, simd, simds);
  if (clipping.kind == SQUARES) total = precise::sqrt(total);
  if (clipping.kind == POWERS) total = precise::pow(total, 1.0f / clipping.order);
  if (clipping.writes && group == 0 && in_group == 0) norm[0] = total;

  const float coefficient = clipping.max_norm / (total + 1e-6f);
  if (coefficient >= 1.0f || isinf(clipping.max_norm)) return;  // NaN goes on, and spreads
  const Chunk chunk = chunk_of(clipping.table, group);
  device G *gradient = OF_GRADIENTS(chunk.tensor);
  for (uint i = chunk.begin + in_group; i < chunk.end; i += size)
    gradient[i] = G(float(gradient[i]) * coefficient);
}

INSTANTIATE(reduce_gradients)
INSTANTIATE(clip_gradients)
