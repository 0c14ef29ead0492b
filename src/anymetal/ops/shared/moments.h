// The moments of a row, by one thread after another, by a team of threads, or from chunks of the
// row; and where the weight of an element stands.
//
// Moments are taken of x minus the row's first element: with a mean of 1000 and a deviation of 1
// the differences are exact, and nothing is lost when the mean is subtracted.
#pragma once
#include "shared/team.h"
#include "shared/vectors.h"

// `grouped`: neighbouring elements share a weight. `activated`: SiLU of the result is what is
// stored.
struct Rms {
  static constexpr constant bool centred = false;
  static constexpr constant bool grouped = false;
  static constexpr constant bool activated = false;
};
struct Layer {
  static constexpr constant bool centred = true;
  static constexpr constant bool grouped = false;
  static constexpr constant bool activated = false;
};
struct Group {
  static constexpr constant bool centred = true;
  static constexpr constant bool grouped = true;
  static constexpr constant bool activated = false;
};
struct GroupSilu {
  static constexpr constant bool centred = true;
  static constexpr constant bool grouped = true;
  static constexpr constant bool activated = true;
};

// --- sizes and parameters ------------------------------------------------------------------------

// What the host passes to every kernel here.
struct Sizes {
  uint rows;
  uint columns;
  uint chunk;    // columns of a chunk, where several threadgroups share a row
  uint spatial;  // elements a weight is for, where they are grouped
  uint groups;   // of channels
  uint block;    // rows whose parameters' gradients are added up before they are written
  uint blocks;
  bool has_weight;
  bool has_bias;
  bool has_other;  // a residual, or a gradient that meets that of x
  float eps;
  float offset;  // of the weights
  // Distances between rows.
  long x;
  long other;
  long y;
  long gradient;
  long x_gradient;
};

// Weights or biases of the elements from `i` on of a row.
template <typename N, uint width, typename T>
inline typename Width<width>::type parameter(device const T* values, uint row, uint i,
                                             constant Sizes& sizes) {
  if constexpr (!N::grouped) return Width<width>::load(values + i);
  const uint first = row % sizes.groups * (sizes.columns / sizes.spatial);
  return typename Width<width>::type(float(values[first + i / sizes.spatial]));
}

template <typename N, uint width, typename T>
inline typename Width<width>::type weight_at(device const T* weight, uint row, uint i,
                                             constant Sizes& sizes) {
  if (!sizes.has_weight) return typename Width<width>::type(1.0f);
  return sizes.offset + parameter<N, width>(weight, row, i, sizes);
}

template <typename N, uint width, typename T>
inline typename Width<width>::type bias_at(device const T* bias, uint row, uint i,
                                           constant Sizes& sizes) {
  if (!sizes.has_bias) return typename Width<width>::type(0.0f);
  return parameter<N, width>(bias, row, i, sizes);
}

// The same for an access that may be of eight elements.
template <typename N, uint width, typename T>
inline void parameters(thread typename Access<width>::type* found, device const T* values, uint row,
                       uint i, constant Sizes& sizes) {
  using Some = Access<width>;
  if constexpr (!N::grouped) {
    Some::load(found, values + i);
  } else {
#pragma unroll
    for (uint part = 0; part < Some::parts; ++part)
      found[part] = parameter<N, Some::step>(values, row, i + part * Some::step, sizes);
  }
}

template <typename N, uint width, typename T>
inline void weights_at(thread typename Access<width>::type* found, device const T* weight, uint row,
                       uint i, constant Sizes& sizes) {
  using Some = Access<width>;
  if (!sizes.has_weight) return Some::fill(found, 1.0f);
  parameters<N, width>(found, weight, row, i, sizes);
#pragma unroll
  for (uint part = 0; part < Some::parts; ++part) found[part] += sizes.offset;
}

template <typename N, uint width, typename T>
inline void biases_at(thread typename Access<width>::type* found, device const T* bias, uint row,
                      uint i, constant Sizes& sizes) {
  if (!sizes.has_bias) return Access<width>::fill(found, 0.0f);
  parameters<N, width>(found, bias, row, i, sizes);
}

// --- moments -------------------------------------------------------------------------------------

// The moments of a row: x - shift has this mean, and the row is divided by its deviation.
struct Moments {
  float shift;
  float mean;
  float reciprocal;  // 1 / sqrt(variance + eps)

  template <typename V>
  V normal(V x) const thread {
    return (x - shift - mean) * reciprocal;
  }
};

// The row's first element, which every thread of the team needs: one lane of a simdgroup reads it.
template <typename N, typename T>
inline float shift_of(device const T* x, thread const Team& team) {
  if constexpr (!N::centred) return 0.0f;
  return simd_broadcast_first(team.lane == 0 ? float(*x) : 0.0f);
}

// The mean of the row's first elements, one a lane: in a long row it is nearer to the mean of all
// than the first one, and the differences and their mean are rounded less.
template <typename N, typename T>
inline float shift_of_several(device const T* x, uint columns, thread const Team& team) {
  if constexpr (!N::centred) return 0.0f;
  return lanes_sum(float(x[min(team.lane, columns - 1)])) * (1.0f / 32.0f);
}

// Something near the mean of a row, which differences are taken from before squares are: the mean
// of as many elements as lanes, or, where elements have 16 bits and show less, of the first eight,
// which every thread reads. One of them that is far from all others moves it little, and the
// deviation more.
template <typename N, typename T>
inline float near_mean(device const T* x, uint lane) {
  if constexpr (!N::centred) return 0.0f;
  if constexpr (sizeof(T) == 4) return lanes_sum(float(x[lane])) * (1.0f / 32.0f);
  float4 some[2];
  Access<8>::load(some, x);
  return sum_of(some[0] + some[1]) * 0.125f;
}

// The reciprocal deviation of a row from its mean square and its mean, of differences that are
// small.
inline float quick_reciprocal(float mean_square, float mean, float eps) {
  return fast::rsqrt(fast::max(fma(-mean, mean, mean_square), 0.0f) + eps);
}

// Welford's running mean and sum of squared differences; without a mean, the sum of squares.
template <typename N, typename V>
struct Running {
  V mean;
  V squares;
  float count;

  void add(V x) thread {
    if constexpr (!N::centred) {
      squares = fma(x, x, squares);
    } else {
      count += 1.0f;
      const V difference = x - mean;
      mean += difference / count;
      squares = fma(difference, x - mean, squares);
    }
  }
};

// Means and sums of squares of parts, as many elements each as `count`, become those of all.
template <typename N, bool alone, typename V>
inline float2 merged(thread const Running<N, V>& part, float columns, thread const Team& team,
                     threadgroup float* scratch) {
  float mean = 0.0f;
  V squares = part.squares;
  if constexpr (N::centred) {
    mean = team_sum<alone, 0>(part.count * sum_of(part.mean), team, scratch) / columns;
    const V difference = part.mean - mean;
    squares += part.count * difference * difference;
  }
  return float2(mean, team_sum<alone, 1>(sum_of(squares), team, scratch));
}

inline Moments finished(float shift, float2 mean_and_squares, uint columns, float eps) {
  const float variance = mean_and_squares.y / float(columns);
  return {shift, mean_and_squares.x, rsqrt(variance + eps)};
}

// All moments below end with a sum in half 1 of the scratch memory.

// The moments of a row that the team holds, `accesses` of `width` elements a thread, each of
// `parts` vectors: two passes over registers, which leave there the differences from the mean. Past
// the end of the row stands `shift`.
template <typename N, bool alone, uint accesses, uint parts = 1, typename V>
inline Moments held_moments(thread V* held, float shift, uint width, uint columns, float eps,
                            thread const Team& team, threadgroup float* scratch) {
  float mean = 0.0f;
  if constexpr (N::centred) {
    V sum = V(0.0f);
#pragma unroll
    for (uint i = 0; i < accesses * parts; ++i) {
      held[i] -= shift;
      sum += held[i];
    }
    mean = team_sum<alone, 0>(sum_of(sum), team, scratch) / float(columns);
  }
  V squares = V(0.0f);
#pragma unroll
  for (uint i = 0; i < accesses * parts; ++i) {
    if constexpr (N::centred) held[i] -= mean;
    if ((i / parts * team.size + team.index) * width < columns)
      squares = fma(held[i], held[i], squares);
  }
  const float total = team_sum<alone, 1>(sum_of(squares), team, scratch);
  return finished(shift, float2(mean, total), columns, eps);
}

// The moments of a row of which each chunk's are in `partials`: mean, sum of squares.
template <typename N>
inline Moments chunked_moments(device const float* partials, float shift, constant Sizes& sizes,
                               thread const Team& team, threadgroup float* scratch) {
  const uint chunks = (sizes.columns + sizes.chunk - 1) / sizes.chunk;
  float weighted = 0.0f;
  for (uint i = team.index; i < chunks; i += team.size) {
    weighted += partials[2 * i] * float(min(sizes.chunk, sizes.columns - i * sizes.chunk));
  }
  const float mean = team_sum<false, 0>(weighted, team, scratch) / float(sizes.columns);
  float squares = 0.0f;
  for (uint i = team.index; i < chunks; i += team.size) {
    const float difference = partials[2 * i] - mean;
    const float count = float(min(sizes.chunk, sizes.columns - i * sizes.chunk));
    squares += partials[2 * i + 1] + count * difference * difference;
  }
  const float total = team_sum<false, 1>(squares, team, scratch);
  return finished(shift, float2(mean, total), sizes.columns, sizes.eps);
}

// The mean and the sum of squares of part of a row, minus `shift`: one read.
template <typename N, uint width, typename T>
inline float2 moments_of_part(device const T* x, float shift, uint begin, uint end,
                              thread const Team& team, threadgroup float* scratch) {
  using W = Width<width>;
  Running<N, typename W::type> running = {0.0f, 0.0f, 0.0f};
  for (uint i = begin + team.index * width; i < end; i += team.size * width) {
    running.add(W::load(x + i) - shift);
  }
  return merged<N, false>(running, float(end - begin), team, scratch);
}
