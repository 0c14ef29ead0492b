// The gradients of norms: that of a row of x from the row and the gradient of its result, in the
// ways the forward kernels go; then those of weight and bias, which are sums over rows.
//
// With g = gradient * weight and n the normalised row, the gradient of x is
// (g - mean(g) - n mean(g n)) / deviation; rms has no mean(g). The moments are computed again,
// which costs no memory. Each row's are kept (shift, mean, 1 / deviation) for the sums over rows.
#include "shared/moments.h"
#include "shared/row_gradients.h"

constant constexpr uint kept_moments = 3;

// The shift becomes the mean, and the mean what that was rounded by: elements are nearer to it than
// to the row's first one, and their differences are rounded less.
inline void keep(thread const Moments& moments, device float* kept, long row) {
  const float mean = moments.shift + moments.mean;
  kept[kept_moments * row] = mean;
  kept[kept_moments * row + 1] = moments.shift - mean + moments.mean;
  kept[kept_moments * row + 2] = moments.reciprocal;
}

inline Moments kept_of(device const float* kept, long row) {
  kept += kept_moments * row;
  return {kept[0], kept[1], kept[2]};
}

// The gradient of x, given the two means over the row.
template <typename N, typename V>
inline V gradient_of(V g, V n, float2 means, float reciprocal) {
  return fma(-n, means.y, N::centred ? g - means.x : g) * reciprocal;
}

// Stores it, with another gradient that meets it there.
template <typename N, uint width, typename T>
inline void store_gradient(device T* x_gradient, device const T* extra, uint i,
                           typename Width<width>::type g, typename Width<width>::type n,
                           float2 means, float reciprocal, bool has_extra) {
  auto dx = gradient_of<N>(g, n, means, reciprocal);
  if (has_extra) dx += Width<width>::load(extra + i);
  Width<width>::store(x_gradient + i, dx);
}

// The means of g and of g n over a row of which each thread has a part; its moments came before.
template <typename N, bool alone, typename V>
inline float2 gradient_means(V g, V gn, float columns, thread const Team& team,
                             threadgroup float* scratch) {
  if constexpr (N::centred)
    return team_sums<alone>(float2(sum_of(g), sum_of(gn)), team, scratch) / columns;
  return float2(0.0f, team_sum<alone, 0>(sum_of(gn), team, scratch)) / columns;
}

// --- the gradient of x ---------------------------------------------------------------------------

// A team takes a block of rows, one after another. With `sums` it adds up what the rows of its
// block give to the gradients of weight and bias: they are in registers already.
template <typename T, typename N, bool alone, bool sums, uint held_elements, uint width>
[[kernel]] void norm_held_backward(
    device const T* gradient [[buffer(0)]], device const T* extra [[buffer(1)]],
    device const T* x [[buffer(2)]], device const T* weight [[buffer(3)]],
    device T* x_gradient [[buffer(4)]], device float* kept [[buffer(5)]],
    device float* block_sums [[buffer(6)]], constant Sizes& sizes [[buffer(7)]],
    uint2 in_grid [[thread_position_in_grid]], uint2 in_group [[thread_position_in_threadgroup]],
    uint2 group_size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  using W = Width<width>;
  using V = typename W::type;
  constexpr uint steps = held_elements / width;
  threadgroup float scratch[scratch_places];
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  V weight_sums[sums ? steps : 1];
  V bias_sums[sums ? steps : 1];
  if constexpr (sums) {
    for (uint step = 0; step < steps; ++step) weight_sums[step] = bias_sums[step] = V(0.0f);
  }
  const uint first = in_grid.y * sizes.block;
  const uint end = min(first + sizes.block, sizes.rows);
  for (uint row = first; row < end; ++row) {
    device const T* row_x = x + row * sizes.x;
    const float shift =
        alone ? shift_of<N>(row_x, team) : shift_of_several<N>(row_x, sizes.columns, team);
    V held[steps];
    for (uint step = 0; step < steps; ++step) {
      const uint i = (step * team.size + team.index) * width;
      held[step] = i < sizes.columns ? W::load(row_x + i) : V(shift);
    }
    const Moments moments =
        held_moments<N, alone, steps>(held, shift, width, sizes.columns, sizes.eps, team, scratch);
    V g[steps];
    V sum = V(0.0f);
    V product = V(0.0f);
    for (uint step = 0; step < steps; ++step) {
      const uint i = (step * team.size + team.index) * width;
      if (i >= sizes.columns) break;
      const V dy = W::load(gradient + row * sizes.gradient + i);
      g[step] = dy * weight_at<N, width>(weight, row, i, sizes);
      held[step] *= moments.reciprocal;
      sum += g[step];
      product += g[step] * held[step];
      if constexpr (sums) {
        weight_sums[step] += dy * held[step];
        bias_sums[step] += dy;
      }
    }
    const float2 means =
        gradient_means<N, alone>(sum, product, float(sizes.columns), team, scratch);
    for (uint step = 0; step < steps; ++step) {
      const uint i = (step * team.size + team.index) * width;
      if (i >= sizes.columns) break;
      store_gradient<N, width>(x_gradient + row * sizes.x_gradient, extra + row * sizes.other, i,
                               g[step], held[step], means, moments.reciprocal, sizes.has_other);
    }
    if (team.index == 0) keep(moments, kept, row);
  }
  if constexpr (sums) {
    for (uint step = 0; step < steps; ++step) {
      const uint i = (step * team.size + team.index) * width;
      if (i >= sizes.columns) break;
      const long at = long(in_grid.y) * sizes.columns + i;
      W::store(block_sums + at, weight_sums[step]);
      if (sizes.has_bias) {
        W::store(block_sums + long(sizes.blocks) * sizes.columns + at, bias_sums[step]);
      }
    }
  }
}

// The same with `sums`, for rows that divide into accesses of `width` elements. Threadgroups take
// rows by turns, so that none has more than one more than another. `biases`: their sums too.
// `whole` rows also follow each other, and `together` of them are taken at a time.
template <typename T, typename N, bool biases, bool whole, uint together, uint held_elements,
          uint width>
[[kernel, max_total_threads_per_threadgroup(most_block_threads)]] void norm_blocks_backward(
    device const T* gradient [[buffer(0)]], device const T* extra [[buffer(1)]],
    device const T* x [[buffer(2)]], device T* weight [[buffer(3)]],
    device T* x_gradient [[buffer(4)]], device float* block_sums [[buffer(5)]],
    constant Sizes& sizes [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]],
    uint2 in_group [[thread_position_in_threadgroup]], uint2 group_size [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]]) {
  using Some = Access<width>;
  constexpr uint accesses = held_elements / width, parts = Some::parts, all = accesses * parts;
  constexpr uint places = together * RowSums<N>::count * most_block_simdgroups;
  // Two sums and 32 elements of x and of the gradient, as floats, would be all registers.
  constexpr bool keeps = !(biases && sizeof(T) == 4 && held_elements == 32);
  constexpr uint kept_x = keeps ? accesses : accesses - 2, kept_gradient = keeps ? accesses : 0;
  // What of the next rows is asked for, and when: as was fastest on an H200.
  constexpr bool late = together == 2 || !N::centred;
  threadgroup float scratch[2 * places];  // for rows by turns
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint columns = sizes.columns;
  float4 weight_sums[all], bias_sums[biases ? all : 1];
#pragma unroll
  for (uint i = 0; i < all; ++i) weight_sums[i] = bias_sums[biases ? i : 0] = float4(0.0f);

  RowInMemory<T, N, accesses, width, kept_x, kept_gradient> here[together];
  const uint first = here[0].first(team);
  const uint turns = (sizes.rows / together - group.y + sizes.blocks - 1) / sizes.blocks;
  for (uint turn = 0; turn < turns; ++turn) {
    const uint row = (group.y + turn * sizes.blocks) * together;
    const long at = long(row) * columns;
#pragma unroll
    for (uint r = 0; r < together; ++r) {
      device const T* row_x = x + (whole ? at + r * columns : row * sizes.x);
      device const T* row_gradient = gradient + (whole ? at + r * columns : row * sizes.gradient);
      if (!whole || keeps || turn == 0)
        here[r].template fetch<whole>(row_x, row_gradient, columns, team);
      else
        here[r].template begin<whole>(row_x, row_gradient, columns, team);
    }
    NextRows<T> next = {x + at + first, gradient, 0};  // of the last rows, themselves
    if (whole && turn + 1 < turns) {
      const long from = at + long(sizes.blocks) * together * columns;
      if (!keeps)
        next.x += from - at;
      else if (sizeof(T) == 2)
        next = {x + from, gradient + from, late ? together * columns : columns / 2};
    }
    add_rows<N, biases, whole, late, together, width>(
        here, weight_sums, bias_sums, weight + first, extra + row * sizes.other + first,
        x_gradient + (whole ? at : row * sizes.x_gradient) + first, row, sizes, next, team,
        scratch + turn % 2 * places);
  }
#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    const uint column = first + i * 32 * width;
    if (!whole && column >= columns) break;
    const long at = long(group.y) * columns + column;
    Some::store(block_sums + at, weight_sums + i * parts);
    if (biases)
      Some::store(block_sums + long(sizes.blocks) * columns + at,
                  bias_sums + (biases ? i * parts : 0));
  }
}

// The sums of g and g n over part of a row.
template <typename N, uint width, typename T>
inline float2 partial_means(device const T* gradient, device const T* x, device const T* weight,
                            uint row, uint begin, uint end, float columns,
                            thread const Moments& moments, constant Sizes& sizes,
                            thread const Team& team, threadgroup float* scratch) {
  using W = Width<width>;
  typename W::type sum = typename W::type(0.0f);
  typename W::type product = typename W::type(0.0f);
  for (uint i = begin + team.index * width; i < end; i += team.size * width) {
    const auto g = W::load(gradient + i) * weight_at<N, width>(weight, row, i, sizes);
    sum += g;
    product += g * moments.normal(W::load(x + i));
  }
  return gradient_means<N, false>(sum, product, columns, team, scratch);
}

// Writes the gradient of part of a row.
template <typename N, uint width, typename T>
inline void write_gradient(device const T* gradient, device const T* extra, device const T* x,
                           device const T* weight, device T* x_gradient, uint row, uint begin,
                           uint end, float2 means, thread const Moments& moments,
                           constant Sizes& sizes, thread const Team& team) {
  using W = Width<width>;
  for (uint i = begin + team.index * width; i < end; i += team.size * width) {
    const auto g = W::load(gradient + i) * weight_at<N, width>(weight, row, i, sizes);
    const auto n = moments.normal(W::load(x + i));
    store_gradient<N, width>(x_gradient, extra, i, g, n, means, moments.reciprocal,
                             sizes.has_other);
  }
}

template <typename T, typename N, uint width>
[[kernel]] void norm_looped_backward(
    device const T* gradient [[buffer(0)]], device const T* extra [[buffer(1)]],
    device const T* x [[buffer(2)]], device const T* weight [[buffer(3)]],
    device T* x_gradient [[buffer(4)]], device float* kept [[buffer(5)]],
    constant Sizes& sizes [[buffer(6)]], uint2 in_grid [[thread_position_in_grid]],
    uint2 in_group [[thread_position_in_threadgroup]], uint2 group_size [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float scratch[scratch_places];
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint row = in_grid.y;
  const uint columns = sizes.columns;
  gradient += row * sizes.gradient;
  extra += row * sizes.other;
  x += row * sizes.x;
  x_gradient += row * sizes.x_gradient;
  const float shift = shift_of_several<N>(x, columns, team);
  const float2 all = moments_of_part<N, width>(x, shift, 0, columns, team, scratch);
  const Moments moments = finished(shift, all, columns, sizes.eps);
  const float2 means = partial_means<N, width>(gradient, x, weight, row, 0, columns, float(columns),
                                               moments, sizes, team, scratch);
  write_gradient<N, width>(gradient, extra, x, weight, x_gradient, row, 0, columns, means, moments,
                           sizes, team);
  if (team.index == 0) keep(moments, kept, row);
}

// The second phase, after norm_partial of norm.metal: chunks' moments become the row's, and each
// chunk gives its share of the means of g and g n.
template <typename T, typename N, uint width>
[[kernel]] void norm_partial_backward(
    device const T* gradient [[buffer(0)]], device const T* x [[buffer(1)]],
    device const T* weight [[buffer(2)]], device const float* partials [[buffer(3)]],
    device float* shares [[buffer(4)]], device float* kept [[buffer(5)]],
    constant Sizes& sizes [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]],
    uint2 groups [[threadgroups_per_grid]], uint2 in_group [[thread_position_in_threadgroup]],
    uint2 group_size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float scratch[scratch_places];
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint row = group.y;
  gradient += row * sizes.gradient;
  x += row * sizes.x;
  const float shift = shift_of<N>(x, team);
  const Moments moments =
      chunked_moments<N>(partials + 2 * row * groups.x, shift, sizes, team, scratch);
  const uint begin = group.x * sizes.chunk;
  const uint end = min(begin + sizes.chunk, sizes.columns);
  const float2 share = partial_means<N, width>(gradient, x, weight, row, begin, end,
                                               float(sizes.columns), moments, sizes, team, scratch);
  if (team.index == 0) {
    shares[2 * (row * groups.x + group.x)] = share.x;
    shares[2 * (row * groups.x + group.x) + 1] = share.y;
    if (group.x == 0) keep(moments, kept, row);
  }
}

template <typename T, typename N, uint width>
[[kernel]] void norm_finish_backward(
    device const T* gradient [[buffer(0)]], device const T* extra [[buffer(1)]],
    device const T* x [[buffer(2)]], device const T* weight [[buffer(3)]],
    device const float* shares [[buffer(4)]], device const float* kept [[buffer(5)]],
    device T* x_gradient [[buffer(6)]], constant Sizes& sizes [[buffer(7)]],
    uint2 group [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]],
    uint2 in_group [[thread_position_in_threadgroup]], uint2 group_size [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float scratch[scratch_places];
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint row = group.y;
  gradient += row * sizes.gradient;
  extra += row * sizes.other;
  x += row * sizes.x;
  x_gradient += row * sizes.x_gradient;
  float2 means = float2(0.0f);
  shares += 2 * row * groups.x;
  for (uint i = team.index; i < groups.x; i += team.size) {
    means += float2(shares[2 * i], shares[2 * i + 1]);
  }
  means = gradient_means<N, false>(means.x, means.y, 1.0f, team, scratch);
  const uint begin = group.x * sizes.chunk;
  write_gradient<N, width>(gradient, extra, x, weight, x_gradient, row, begin,
                           min(begin + sizes.chunk, sizes.columns), means, kept_of(kept, row),
                           sizes, team);
}

// --- the gradients of weight and bias ------------------------------------------------------------

// Sums over blocks of rows: a thread walks down a column (or four). `sums` holds all of the
// weight's, then all of the bias's.
template <typename T, uint width>
[[kernel]] void column_sums(device const T* gradient [[buffer(0)]], device const T* x [[buffer(1)]],
                            device const float* kept [[buffer(2)]],
                            device float* sums [[buffer(3)]], constant Sizes& sizes [[buffer(4)]],
                            uint2 in_grid [[thread_position_in_grid]]) {
  using W = Width<width>;
  const uint column = in_grid.x * width;
  const uint first = in_grid.y * sizes.block;
  typename W::type weight = typename W::type(0.0f);
  typename W::type bias = typename W::type(0.0f);
  for (uint row = first; row < min(first + sizes.block, sizes.rows); ++row) {
    const auto dy = W::load(gradient + row * sizes.gradient + column);
    weight += dy * kept_of(kept, row).normal(W::load(x + row * sizes.x + column));
    bias += dy;
  }
  W::store(sums + long(in_grid.y) * sizes.columns + column, weight);
  if (sizes.has_bias)
    W::store(sums + long(sizes.blocks + in_grid.y) * sizes.columns + column, bias);
}

// Sums over the places of a channel, a simdgroup each. Tensors are dense.
template <typename T, uint width>
[[kernel]] void channel_sums(device const T* gradient [[buffer(0)]],
                             device const T* x [[buffer(1)]],
                             device const float* kept [[buffer(2)]],
                             device float* sums [[buffer(3)]], constant Sizes& sizes [[buffer(4)]],
                             uint2 in_grid [[thread_position_in_grid]],
                             uint lane [[thread_index_in_simdgroup]]) {
  using W = Width<width>;
  using V = typename W::type;
  const uint places = sizes.spatial;
  const uint channels_of_group = sizes.columns / places;
  const uint channel = in_grid.y;  // of all samples
  gradient += long(channel) * places;
  x += long(channel) * places;
  const Moments moments = kept_of(kept, channel / channels_of_group);
  // Four sums of each, by turns where an access has one element: fewer roundings one behind the
  // other, and more loads on their way.
  constexpr uint parts = 4 / width;
  constexpr uint step = 32 * width;
  V weights[parts] = {};
  V biases[parts] = {};
  uint i = lane * width;
  for (; i + (parts - 1) * step < places; i += parts * step) {
#pragma unroll
    for (uint part = 0; part < parts; ++part) {
      const V dy = W::load(gradient + i + part * step);
      weights[part] += dy * moments.normal(W::load(x + i + part * step));
      biases[part] += dy;
    }
  }
  for (; parts > 1 && i < places; i += step) {
    const V dy = W::load(gradient + i);
    weights[0] += dy * moments.normal(W::load(x + i));
    biases[0] += dy;
  }
#pragma unroll
  for (uint part = 1; part < parts; ++part) {
    weights[0] += weights[part];
    biases[0] += biases[part];
  }
  const float weight_sum = simd_sum(sum_of(weights[0]));
  const float bias_sum = simd_sum(sum_of(biases[0]));
  if (lane == 0) {
    sums[channel] = weight_sum;
    sums[long(sizes.rows) * channels_of_group + channel] = bias_sum;
  }
}

struct Totals {
  uint columns;
  uint blocks;
  bool halves;  // of eight columns lie 128 sums apart, as norm_asked_backward leaves them

  uint column_of(uint place) constant {
    if (!halves) return place;
    const uint lane = place / 4 % 32, half_of_eight = place / 128 % 2;
    return place / 256 * 256 + lane * 8 + half_of_eight * 4 + place % 4;
  }
};

// The sums of all blocks: the second coordinate says whose, the weight's or the bias's.
template <typename T>
[[kernel]] void parameter_sums(device const float* sums [[buffer(0)]],
                               device T* weight_gradient [[buffer(1)]],
                               device T* bias_gradient [[buffer(2)]],
                               constant Totals& sizes [[buffer(3)]],
                               uint2 in_grid [[thread_position_in_grid]]) {
  sums += long(in_grid.y) * sizes.columns * sizes.blocks + in_grid.x;
  float sum = 0.0f;
  for (uint block = 0; block < sizes.blocks; ++block) sum += sums[long(block) * sizes.columns];
  device T* to = in_grid.y == 0 ? weight_gradient : bias_gradient;
  to[sizes.column_of(in_grid.x)] = T(sum);
}

// The same where there are few columns for a device: an even number of them. A threadgroup takes 32
// pairs of neighbours; threads below each other, at least two and at most 32, share the blocks.
template <typename T>
[[kernel]] void shared_parameter_sums(device const float* sums [[buffer(0)]],
                                      device T* weight_gradient [[buffer(1)]],
                                      device T* bias_gradient [[buffer(2)]],
                                      constant Totals& sizes [[buffer(3)]],
                                      uint2 group [[threadgroup_position_in_grid]],
                                      uint2 in_group [[thread_position_in_threadgroup]],
                                      uint2 threads [[threads_per_threadgroup]]) {
  constexpr uint beside = 64;
  threadgroup float partial[32 * beside];
  const uint first_column = group.x * beside, column = first_column + in_group.x * 2;
  sums += long(group.y) * sizes.columns * sizes.blocks + column;
  float2 sum = 0.0f;
  constexpr uint loads = 9;  // on their way at once: as many as most threads have blocks
  for (uint first = in_group.y; first < sizes.blocks; first += loads * threads.y) {
    float2 some[loads];
#pragma unroll
    for (uint i = 0; i < loads; ++i) {
      const uint block = first + i * threads.y;
      const bool is_there = block < sizes.blocks && column < sizes.columns;
      device const float* from = sums + long(block) * sizes.columns;
      some[i] = is_there ? *reinterpret_cast<device const float2*>(from) : float2(0.0f);
    }
#pragma unroll
    for (uint i = 0; i < loads; ++i) sum += some[i];
  }
  *reinterpret_cast<threadgroup float2*>(partial + in_group.y * beside + in_group.x * 2) = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint place = in_group.y * 32 + in_group.x;
  if (place >= beside || first_column + place >= sizes.columns) return;
  float total = 0.0f;
  for (uint i = 0; i < threads.y; ++i) total += partial[i * beside + place];
  device T* to = group.y == 0 ? weight_gradient : bias_gradient;
  to[sizes.column_of(first_column + place)] = T(total);
}

// --- instances -----------------------------------------------------------------------------------

#define NORM_INSTANCE(text, ...) \
  template [[host_name(text)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
#define HELD(name, N, sums, word, width, T)                      \
  NORM_INSTANCE(name "_single_simdgroup_16_" word #T,            \
                norm_held_backward<T, N, true, sums, 16, width>) \
  NORM_INSTANCE(name "_single_group_16_" word #T, norm_held_backward<T, N, false, sums, 16, width>)
#define NORM(name, N, word, width, T)                                          \
  HELD(#name, N, false, word, width, T)                                        \
  HELD(#name "_sums", N, true, word, width, T)                                 \
  NORM_INSTANCE(#name "_looped_" word #T, norm_looped_backward<T, N, width>)   \
  NORM_INSTANCE(#name "_partial_" word #T, norm_partial_backward<T, N, width>) \
  NORM_INSTANCE(#name "_finish_" word #T, norm_finish_backward<T, N, width>)
#define NORMS(word, width, T)                                  \
  NORM(rms_norm_backward, Rms, word, width, T)                 \
  NORM(layer_norm_backward, Layer, word, width, T)             \
  NORM(group_norm_backward, Group, word, width, T)             \
  NORM_INSTANCE("column_sums_" word #T, column_sums<T, width>) \
  NORM_INSTANCE("channel_sums_" word #T, channel_sums<T, width>)
#define NORMS_OF_TYPE(T)                                 \
  NORMS("vec4_", 4, T)                                   \
  NORMS("scalar_", 1, T)                                 \
  NORM_INSTANCE("parameter_sums_" #T, parameter_sums<T>) \
  NORM_INSTANCE("shared_parameter_sums_" #T, shared_parameter_sums<T>)
// 16 bytes an access.
#define BLOCKS(name, N, biases, held, word, width, T)                     \
  NORM_INSTANCE(name "_blocks_" #held "_whole_" word #T,                  \
                norm_blocks_backward<T, N, biases, true, 1, held, width>) \
  NORM_INSTANCE(name "_blocks_" #held "_" word #T,                        \
                norm_blocks_backward<T, N, biases, false, 1, held, width>)
#define BLOCKS_OF_EACH(held, word, width, T)                                    \
  BLOCKS("rms_norm_backward_weight_sums", Rms, false, held, word, width, T)     \
  BLOCKS("layer_norm_backward_weight_sums", Layer, false, held, word, width, T) \
  BLOCKS("layer_norm_backward_sums", Layer, true, held, word, width, T)
#define BLOCKS_OF_TYPE(word, width, T) \
  BLOCKS_OF_EACH(16, word, width, T)   \
  BLOCKS_OF_EACH(32, word, width, T)
// Two rows at a time.
#define PAIR(name, N, biases, T)                  \
  NORM_INSTANCE(name "_blocks_16_pairs_vec8_" #T, \
                norm_blocks_backward<T, N, biases, true, 2, 16, 8>)
#define PAIRS(T)                                           \
  PAIR("rms_norm_backward_weight_sums", Rms, false, T)     \
  PAIR("layer_norm_backward_weight_sums", Layer, false, T) \
  PAIR("layer_norm_backward_sums", Layer, true, T)

BLOCKS_OF_TYPE("vec4_", 4, float)
BLOCKS_OF_TYPE("vec8_", 8, half)
BLOCKS_OF_TYPE("vec8_", 8, bfloat)
PAIRS(half)
PAIRS(bfloat)

NORMS_OF_TYPE(float)
NORMS_OF_TYPE(half)
NORMS_OF_TYPE(bfloat)
