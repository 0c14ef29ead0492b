// Rows of x go in; rows with mean 0 and variance 1 (layer), or mean square 1 (rms), come out, times
// a weight, plus a bias.
//
//   held     a team of threads keeps a row in registers: one read, one write
//   looped   a threadgroup walks along a row and reads it twice
//   partial, finish   several threadgroups a row; each finishes its chunk with everyone's moments
#include "shared/activations.h"
#include "shared/moments.h"

// --- reading a row, with or without a residual ---------------------------------------------------

// x, or x + residual as it is stored: rounded to T, so that it is what the caller gets.
template <bool residual, uint width, typename T>
inline typename Width<width>::type read(device const T* x, device const T* other, device T* sum,
                                        uint i) {
  using W = Width<width>;
  if constexpr (!residual) return W::load(x + i);
  const auto total = W::load(x + i) + W::load(other + i);
  W::store(sum + i, total);
  return W::template rounded<T>(total);
}

// The same for an access that may be of eight elements, and may begin past the end of the row: then
// nothing is stored.
template <bool residual, uint width, typename T>
inline void read(thread typename Access<width>::type* held, device const T* x,
                 device const T* other, device T* sum, uint i, uint columns) {
  using Some = Access<width>;
  const uint from = min(i, columns - width);
  Some::load(held, x + from);
  if constexpr (residual) {
    typename Some::type others[Some::parts];
    Some::load(others, other + from);
#pragma unroll
    for (uint part = 0; part < Some::parts; ++part) held[part] += others[part];
    if (i < columns) Some::store(sum + i, held);
#pragma unroll
    for (uint part = 0; part < Some::parts; ++part)
      held[part] = Some::Part::template rounded<T>(held[part]);
  }
}

// The same without storing: the first element, as shift_of gives it.
template <typename N, bool residual, typename T>
inline float first_of(device const T* x, device const T* other, thread const Team& team) {
  if constexpr (!residual) return shift_of<N>(x, team);
  if constexpr (!N::centred) return 0.0f;
  return simd_broadcast_first(team.lane == 0 ? float(T(float(*x) + float(*other))) : 0.0f);
}

// What is stored of a normalised value.
template <typename N, typename T, typename V>
inline V result_of(V value) {
  if constexpr (N::activated) return Silu::of<T>(value);
  return value;
}

// --- forward -------------------------------------------------------------------------------------

template <typename T, typename N, bool residual, bool alone, uint held_elements, uint width>
[[kernel]] void norm_held(
    device const T* x [[buffer(0)]], device const T* other [[buffer(1)]],
    device const T* weight [[buffer(2)]], device const T* bias [[buffer(3)]],
    device T* y [[buffer(4)]], device T* sum [[buffer(5)]], constant Sizes& sizes [[buffer(6)]],
    uint2 in_grid [[thread_position_in_grid]], uint2 in_group [[thread_position_in_threadgroup]],
    uint2 group_size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  using Some = Access<width>;
  using V = typename Some::type;
  threadgroup float scratch[scratch_places];
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint row = in_grid.y;
  x += row * sizes.x;
  other += row * sizes.other;
  y += row * sizes.y;
  sum += row * sizes.y;

  constexpr uint accesses = held_elements / width;
  V held[accesses * Some::parts];
  // Loads without branches are all on their way before one is waited for. Past the end of a row its
  // last elements are read again.
#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    const uint at = (i * team.size + team.index) * width;
    read<residual, width>(held + i * Some::parts, x, other, sum, at, sizes.columns);
  }
  const float shift = first_of<N, residual>(x, other, team);
  if (sizes.columns != accesses * team.size * width) {
#pragma unroll
    for (uint i = 0; i < accesses; ++i)
      if ((i * team.size + team.index) * width >= sizes.columns)
        Some::fill(held + i * Some::parts, shift);
  }
  const Moments moments = held_moments<N, alone, accesses, Some::parts>(
      held, shift, width, sizes.columns, sizes.eps, team, scratch);
#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    const uint at = (i * team.size + team.index) * width;
    if (at >= sizes.columns) break;
    V w[Some::parts], b[Some::parts];
    weights_at<N, width>(w, weight, row, at, sizes);
    biases_at<N, width>(b, bias, row, at, sizes);
    thread V* here = held + i * Some::parts;
#pragma unroll
    for (uint part = 0; part < Some::parts; ++part)
      here[part] = result_of<N, T>(fma(here[part] * moments.reciprocal, w[part], b[part]));
    Some::store(y + at, here);
  }
}

// The same for rows that follow each other and fill all threads, with a weight, and a bias where a
// mean is taken away. Moments are taken in one pass and with one barrier. Registers are short:
// elements stay as they lie in memory, and become floats twice (`spatial` is 0, which a compiler
// must not know: it would keep the floats); weights and biases are not const, so that their loads
// are not moved over stores. Accesses of a simdgroup stand side by side, so that a thread's are a
// fixed distance apart: one address is enough.
template <typename T, typename N, uint held_elements, uint width>
[[kernel]] void norm_whole(
    device const T* x [[buffer(0)]], device T* weight [[buffer(1)]], device T* bias [[buffer(2)]],
    device T* y [[buffer(3)]], constant Sizes& sizes [[buffer(4)]],
    uint2 group [[threadgroup_position_in_grid]], uint2 in_group [[thread_position_in_threadgroup]],
    uint2 group_size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  using Some = Access<width>;
  using Raw = Lying<T, width>;
  constexpr uint accesses = held_elements / width, parts = Some::parts;
  constexpr uint count = N::centred ? 2 : 1;
  threadgroup float scratch[count * most_simdgroups];
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint columns = sizes.columns, first = (simd * accesses * 32 + lane) * width;
  const long row = long(group.y) * columns;
  x += row;
  y += row + first;
  typename Raw::type held[accesses];
#pragma unroll
  for (uint i = 0; i < accesses; ++i) held[i] = Raw::load(x + first + i * 32 * width);
  const float shift = near_mean<N>(x, lane);
  float2 squares = float2(0.0f), sum = squares;
  float4 values[parts], w[parts], b[parts];
#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    Raw::read(values, held[i]);
#pragma unroll
    for (uint part = 0; part < parts; ++part) {
      const float4 v = N::centred ? values[part] - shift : values[part];
      squares = fma(v.zw, v.zw, fma(v.xy, v.xy, squares));
      if constexpr (N::centred) sum = (sum + v.xy) + v.zw;
    }
  }
  float sums[2] = {squares.x + squares.y, sum.x + sum.y};  // without a mean, the second stays 0
  exchange_team_sums<count>(sums, team, scratch);
  const float share = fast::divide(1.0f, float(columns)), mean = sums[1] * share;
  const float reciprocal = quick_reciprocal(sums[0] * share, mean, sizes.eps);
  // Elements of 16 bits are not so near to each other that a difference would lose what they show.
  const float offset = -(shift + mean) * reciprocal;
#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    const uint at = i * 32 * width;
    Some::load(w, weight + first + at);
    if constexpr (N::centred) Some::load(b, bias + first + at);
    Raw::read(values, N::centred ? held[i] : Raw::anew(held[i], sizes.spatial));
#pragma unroll
    for (uint part = 0; part < parts; ++part) {
      if constexpr (N::centred && sizeof(T) == 2)
        values[part] = fma(fma(values[part], float4(reciprocal), float4(offset)), w[part], b[part]);
      else if constexpr (N::centred)
        values[part] = fma((values[part] - shift - mean) * reciprocal, w[part], b[part]);
      else
        values[part] = values[part] * reciprocal * w[part];
    }
    Some::store(y + at, values);
  }
}

template <typename T, typename N, bool residual, uint width>
[[kernel]] void norm_looped(
    device const T* x [[buffer(0)]], device const T* other [[buffer(1)]],
    device const T* weight [[buffer(2)]], device const T* bias [[buffer(3)]],
    device T* y [[buffer(4)]], device T* sum [[buffer(5)]], constant Sizes& sizes [[buffer(6)]],
    uint2 in_grid [[thread_position_in_grid]], uint2 in_group [[thread_position_in_threadgroup]],
    uint2 group_size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  using W = Width<width>;
  threadgroup float scratch[scratch_places];
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint row = in_grid.y;
  x += row * sizes.x;
  other += row * sizes.other;
  y += row * sizes.y;
  sum += row * sizes.y;
  const float shift = first_of<N, residual>(x, other, team);

  Running<N, typename W::type> running = {0.0f, 0.0f, 0.0f};
  const uint stride = team.size * width;
  for (uint i = team.index * width; i < sizes.columns; i += stride) {
    running.add(read<residual, width>(x, other, sum, i) - shift);
  }
  const float2 all = merged<N, false>(running, float(sizes.columns), team, scratch);
  const Moments moments = finished(shift, all, sizes.columns, sizes.eps);
  device const T* again = residual ? sum : x;  // each thread reads back what it wrote itself
  for (uint i = team.index * width; i < sizes.columns; i += stride) {
    const auto w = weight_at<N, width>(weight, row, i, sizes);
    const auto b = bias_at<N, width>(bias, row, i, sizes);
    W::store(y + i, result_of<N, T>(moments.normal(W::load(again + i)) * w + b));
  }
}

// First of two phases: a threadgroup a chunk of a row. With a residual it also writes the sum.
template <typename T, typename N, bool residual, uint width>
[[kernel]] void norm_partial(
    device const T* x [[buffer(0)]], device const T* other [[buffer(1)]],
    device float* partials [[buffer(2)]], device T* sum [[buffer(3)]],
    constant Sizes& sizes [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
    uint2 groups [[threadgroups_per_grid]], uint2 in_group [[thread_position_in_threadgroup]],
    uint2 group_size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  using W = Width<width>;
  threadgroup float scratch[scratch_places];
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  x += group.y * sizes.x;
  other += group.y * sizes.other;
  sum += group.y * sizes.y;
  const float shift = first_of<N, residual>(x, other, team);

  const uint begin = group.x * sizes.chunk;
  const uint end = min(begin + sizes.chunk, sizes.columns);
  Running<N, typename W::type> running = {0.0f, 0.0f, 0.0f};
  for (uint i = begin + team.index * width; i < end; i += team.size * width) {
    running.add(read<residual, width>(x, other, sum, i) - shift);
  }
  const float2 all = merged<N, false>(running, float(end - begin), team, scratch);
  if (team.index == 0) {
    device float* mine = partials + 2 * (group.y * groups.x + group.x);
    mine[0] = all.x;
    mine[1] = all.y;
  }
}

template <typename T, typename N, uint width>
[[kernel]] void norm_finish(
    device const T* x [[buffer(0)]], device const float* partials [[buffer(1)]],
    device const T* weight [[buffer(2)]], device const T* bias [[buffer(3)]],
    device T* y [[buffer(4)]], constant Sizes& sizes [[buffer(5)]],
    uint2 group [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]],
    uint2 in_group [[thread_position_in_threadgroup]], uint2 group_size [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]]) {
  using W = Width<width>;
  threadgroup float scratch[scratch_places];
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  x += group.y * sizes.x;
  y += group.y * sizes.y;
  const Moments moments = chunked_moments<N>(partials + 2 * group.y * groups.x,
                                             shift_of<N>(x, team), sizes, team, scratch);
  const uint begin = group.x * sizes.chunk;
  const uint end = min(begin + sizes.chunk, sizes.columns);
  for (uint i = begin + team.index * width; i < end; i += team.size * width) {
    const auto w = weight_at<N, width>(weight, group.y, i, sizes);
    const auto b = bias_at<N, width>(bias, group.y, i, sizes);
    W::store(y + i, result_of<N, T>(fma(moments.normal(W::load(x + i)), w, b)));
  }
}

// --- instances: <name>_<strategy>_<vec4 or scalar>_<dtype> ---------------------------------------

#define NORM_INSTANCE(text, ...) \
  template [[host_name(text)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
#define FORWARD(name, N, residual, word, width, T)                                                 \
  NORM_INSTANCE(#name "_single_simdgroup_16_" word #T, norm_held<T, N, residual, true, 16, width>) \
  NORM_INSTANCE(#name "_single_group_8_" word #T, norm_held<T, N, residual, false, 8, width>)      \
  NORM_INSTANCE(#name "_single_group_16_" word #T, norm_held<T, N, residual, false, 16, width>)    \
  NORM_INSTANCE(#name "_single_group_32_" word #T, norm_held<T, N, residual, false, 32, width>)    \
  NORM_INSTANCE(#name "_looped_" word #T, norm_looped<T, N, residual, width>)                      \
  NORM_INSTANCE(#name "_partial_" word #T, norm_partial<T, N, residual, width>)
#define NORM(name, N, word, width, T)          \
  FORWARD(name, N, false, word, width, T)      \
  FORWARD(add_##name, N, true, word, width, T) \
  NORM_INSTANCE(#name "_finish_" word #T, norm_finish<T, N, width>)
#define GROUP_NORM(name, N, word, width, T) \
  FORWARD(name, N, false, word, width, T)   \
  NORM_INSTANCE(#name "_finish_" word #T, norm_finish<T, N, width>)
#define NORMS(word, width, T)                   \
  NORM(rms_norm, Rms, word, width, T)           \
  NORM(layer_norm, Layer, word, width, T)       \
  GROUP_NORM(group_norm, Group, word, width, T) \
  GROUP_NORM(group_norm_silu, GroupSilu, word, width, T)
#define NORMS_OF_TYPE(T) NORMS("vec4_", 4, T) NORMS("scalar_", 1, T)
// 16 bytes an access, where a row is held.
#define EIGHT(name, N, residual, T)                                                         \
  NORM_INSTANCE(#name "_single_group_16_vec8_" #T, norm_held<T, N, residual, false, 16, 8>) \
  NORM_INSTANCE(#name "_single_group_32_vec8_" #T, norm_held<T, N, residual, false, 32, 8>)
#define WHOLE(name, N, held, word, width, T) \
  NORM_INSTANCE(#name "_whole_" #held "_" word #T, norm_whole<T, N, held, width>)
#define WHOLE_OF_TYPE(word, width, T)          \
  WHOLE(rms_norm, Rms, 8, word, width, T)      \
  WHOLE(layer_norm, Layer, 8, word, width, T)  \
  WHOLE(rms_norm, Rms, 16, word, width, T)     \
  WHOLE(rms_norm, Rms, 32, word, width, T)     \
  WHOLE(layer_norm, Layer, 16, word, width, T) \
  WHOLE(layer_norm, Layer, 32, word, width, T)
#define EIGHTS_OF_TYPE(T)        \
  EIGHT(rms_norm, Rms, false, T) \
  EIGHT(layer_norm, Layer, false, T)

NORMS_OF_TYPE(float)
NORMS_OF_TYPE(half)
NORMS_OF_TYPE(bfloat)
EIGHTS_OF_TYPE(half)
EIGHTS_OF_TYPE(bfloat)
WHOLE_OF_TYPE("vec4_", 4, float)
WHOLE_OF_TYPE("vec8_", 8, half)
WHOLE_OF_TYPE("vec8_", 8, bfloat)
