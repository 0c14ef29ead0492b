// The gradients of norms: that of a row of x from the row and the gradient of its result, in the
// ways the forward kernels go; then those of weight and bias, which are sums over rows.
//
// With g = gradient * weight and n the normalised row, the gradient of x is
// (g - mean(g) - n mean(g n)) / deviation; rms has no mean(g). The moments are computed again,
// which costs no memory. Each row's are kept (shift, mean, 1 / deviation) for the sums over rows.
#include "shared/moments.h"

constant constexpr uint kept_moments = 3;

inline void keep(thread const Moments& moments, device float* kept, long row) {
  kept[kept_moments * row] = moments.shift;
  kept[kept_moments * row + 1] = moments.mean;
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
    const float shift = shift_of<N>(row_x, team);
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

// What a thread has of a row of x and of the gradient, as it lies in memory: elements of 16 bits
// take half of the registers that floats would. Past the end of a row its last elements are read
// again, and not used. Accesses of a simdgroup stand side by side, so that a thread's are a fixed
// distance apart: one address is enough.
template <typename T, typename N, uint accesses, uint width>
struct RowInMemory {
  using Raw = Lying<T, width>;
  using Some = Access<width>;
  typename Raw::type x[accesses];
  typename Raw::type gradient[accesses];
  float shift;

  static uint first(thread const Team& team) {
    return (team.simd * accesses * 32 + team.lane) * width;
  }

  template <bool whole>
  void fetch(device const T* row_x, device const T* row_gradient, uint columns,
             thread const Team& team) thread {
#pragma unroll
    for (uint i = 0; i < accesses; ++i) {
      const uint place = first(team) + i * 32 * width;
      const uint at = whole ? place : min(place, columns - width);
      x[i] = Raw::load(row_x + at);
      gradient[i] = Raw::load(row_gradient + at);
    }
    // Differences are taken from something near the mean, where it is taken away: the mean of as
    // many elements as lanes. One of them that is far from all others moves it little.
    shift = 0.0f;
    if constexpr (N::centred) {
      shift = lanes_sum(float(row_x[min(team.lane, columns - 1)])) * (1.0f / 32.0f);
    }
  }

  void read(thread float4* differences, thread float4* dy, uint i) const thread {
    Raw::read(differences, x[i]);
    Raw::read(dy, gradient[i]);
    if constexpr (N::centred) {
#pragma unroll
      for (uint part = 0; part < Some::parts; ++part) differences[part] -= shift;
    }
  }

  // The same without taking `shift` away, where elements have 16 bits: they are not so near to each
  // other that this would matter in what is linear in them. `zero` is 0, which a compiler must not
  // know: it would keep what was read before, as floats.
  void read_again(thread float4* values, thread float4* dy, uint i, uint zero) const thread {
    if constexpr (sizeof(T) == 4) return read(values, dy, i);
    Raw::read(values, Raw::changed(x[i], zero));
    Raw::read(dy, Raw::changed(gradient[i], zero));
  }
  float shift_left() const thread { return sizeof(T) == 4 ? 0.0f : shift; }
};

// weights_at, for weights that mostly have no offset: `plain` ones are there, and have none.
template <typename N, uint width, bool plain, typename T>
inline void plain_weights_at(thread float4* found, device const T* weight, uint row, uint i,
                             constant Sizes& sizes) {
  if (!plain && !sizes.has_weight) return Access<width>::fill(found, 1.0f);
  parameters<N, width>(found, weight, row, i, sizes);
  if (plain || sizes.offset == 0.0f) return;
#pragma unroll
  for (uint part = 0; part < Access<width>::parts; ++part) found[part] += sizes.offset;
}

// The gradient of x as a sum of multiples: of g, of x or its difference from a shift, and of 1.
// What is normalised is that x times `reciprocal`, plus `normal_offset`.
struct Multiples {
  float reciprocal;
  float normal_offset;
  float of_difference;
  float constant_part;
};

// From the sums over a row of squared differences, of g times differences, of differences and of g:
// the last two of centred norms only. `shift` is what x has been left with of its own.
template <typename N>
inline Multiples multiples_of(thread const float* sums, float shift, float columns, float eps) {
  const float mean = N::centred ? sums[2] / columns : 0.0f;
  const float gradient_mean = N::centred ? sums[3] / columns : 0.0f;
  const float variance = fma(-mean, mean, sums[0] / columns);
  const float reciprocal = rsqrt(max(variance, 0.0f) + eps);
  const float product_mean = fma(-mean, gradient_mean, sums[1] / columns);
  const float of_difference = -product_mean * reciprocal * reciprocal * reciprocal;
  const float whole_mean = shift + mean;
  return {reciprocal, -whole_mean * reciprocal, of_difference,
          -fma(gradient_mean, reciprocal, whole_mean * of_difference)};
}

inline float2 with_products(float2 sum, float4 a, float4 b) {
  return fma(a.zw, b.zw, fma(a.xy, b.xy, sum));
}

// One row: the gradient of x, and what it gives to the sums of the threadgroup. Barriers are what
// rows wait for, and registers: all that is needed of a row is summed up in one pass, and weights
// are read again. They are not const, since a compiler that knew that they stay as they are would
// keep them instead. In a `whole` row every thread has all its accesses, and there is a weight and
// nothing else: loads that no branch holds up are on their way at once. `weight`, `extra` and
// `x_gradient` begin with what is the thread's.
template <typename N, bool biases, bool whole, uint width, typename T, uint accesses>
inline void add_row(thread const RowInMemory<T, N, accesses, width>& here,
                    thread float4* weight_sums, thread float4* bias_sums, device T* weight,
                    device const T* extra, device T* x_gradient, uint row, constant Sizes& sizes,
                    thread const Team& team, threadgroup float* scratch) {
  using Some = Access<width>;
  constexpr uint parts = Some::parts, count = N::centred ? 4 : 2;
  const uint columns = sizes.columns, left = columns - min(columns, here.first(team));
  float4 values[parts], dy[parts], w[parts];
  float2 squares = float2(0.0f), products = squares, sum = squares, gradient_sum = squares;
#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    const uint at = i * 32 * width;
    if (!whole && at >= left) break;
    if (whole) simdgroup_barrier(mem_flags::mem_none);
    plain_weights_at<N, width, whole>(w, weight, row, at, sizes);
    here.read(values, dy, i);
#pragma unroll
    for (uint part = 0; part < parts; ++part) {
      const float4 g = dy[part] * w[part];
      squares = with_products(squares, values[part], values[part]);
      products = with_products(products, g, values[part]);
      if constexpr (N::centred) {
        sum = (sum + values[part].xy) + values[part].zw;
        gradient_sum = (gradient_sum + g.xy) + g.zw;
      }
    }
  }
  float sums[4] = {squares.x + squares.y, products.x + products.y, sum.x + sum.y,
                   gradient_sum.x + gradient_sum.y};
  exchange_team_sums<count>(sums, team, scratch);
  const Multiples multiples = multiples_of<N>(sums, here.shift_left(), float(columns), sizes.eps);

#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    const uint at = i * 32 * width;
    if (!whole && at >= left) break;
    plain_weights_at<N, width, whole>(w, weight, row, at, sizes);
    here.read_again(values, dy, i, N::centred ? sizes.spatial : 0);
#pragma unroll
    for (uint part = 0; part < parts; ++part) {
      const uint j = i * parts + part;
      const float4 normal =
          fma(values[part], float4(multiples.reciprocal), float4(multiples.normal_offset));
      weight_sums[j] = fma(dy[part], normal, weight_sums[j]);
      if constexpr (biases) bias_sums[j] += dy[part];
      const float4 rest =
          fma(values[part], float4(multiples.of_difference), float4(multiples.constant_part));
      values[part] = fma(dy[part] * w[part], float4(multiples.reciprocal), rest);
    }
    if (!whole && sizes.has_other) {
      float4 other[parts];
      Some::load(other, extra + at);
#pragma unroll
      for (uint part = 0; part < parts; ++part) values[part] += other[part];
    }
    Some::store(x_gradient + at, values);
  }
}

// No more, so that a thread may have as many registers as a row and its sums need.
constant constexpr uint most_block_threads = 512;

// The same with `sums`, for rows that divide into accesses of `width` elements. Threadgroups take
// rows by turns, so that none has more than one more than another. `biases`: their sums too.
// `whole` rows also follow each other.
template <typename T, typename N, bool biases, bool whole, uint held_elements, uint width>
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
  constexpr uint places = (N::centred ? 4 : 2) * most_simdgroups;
  threadgroup float scratch[2 * places];  // for rows by turns
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint columns = sizes.columns;
  float4 weight_sums[all], bias_sums[biases ? all : 1];
#pragma unroll
  for (uint i = 0; i < all; ++i) weight_sums[i] = bias_sums[biases ? i : 0] = float4(0.0f);

  RowInMemory<T, N, accesses, width> here;
  const uint first = here.first(team);
  const uint turns = (sizes.rows - group.y + sizes.blocks - 1) / sizes.blocks;
  for (uint turn = 0; turn < turns; ++turn) {
    const uint row = group.y + turn * sizes.blocks;
    const long at = long(row) * columns;
    here.template fetch<whole>(x + (whole ? at : row * sizes.x),
                               gradient + (whole ? at : row * sizes.gradient), columns, team);
    add_row<N, biases, whole, width>(here, weight_sums, bias_sums, weight + first,
                                     extra + row * sizes.other + first,
                                     x_gradient + (whole ? at : row * sizes.x_gradient) + first,
                                     row, sizes, team, scratch + turn % 2 * places);
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
  const float shift = shift_of<N>(x, team);
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

// Those of the bias alone.
template <typename T, uint width>
[[kernel]] void bias_sums(device const T* gradient [[buffer(0)]], device float* sums [[buffer(1)]],
                          constant Sizes& sizes [[buffer(2)]],
                          uint2 in_grid [[thread_position_in_grid]]) {
  using Some = Access<width>;
  constexpr uint parts = Some::parts;
  const uint column = in_grid.x * width, first = in_grid.y * sizes.block;
  const uint end = min(first + sizes.block, sizes.rows);
  typename Some::type total[parts], dy[parts];
  Some::fill(total, 0.0f);
  for (uint row = first; row < end; ++row) {
    Some::load(dy, gradient + row * sizes.gradient + column);
#pragma unroll
    for (uint part = 0; part < parts; ++part) total[part] += dy[part];
  }
  Some::store(sums + long(in_grid.y) * sizes.columns + column, total);
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
  const uint places = sizes.spatial;
  const uint channels_of_group = sizes.columns / places;
  const uint channel = in_grid.y;  // of all samples
  gradient += long(channel) * places;
  x += long(channel) * places;
  const Moments moments = kept_of(kept, channel / channels_of_group);
  typename W::type weight = typename W::type(0.0f);
  typename W::type bias = typename W::type(0.0f);
  for (uint i = lane * width; i < places; i += 32 * width) {
    const auto dy = W::load(gradient + i);
    weight += dy * moments.normal(W::load(x + i));
    bias += dy;
  }
  const float weight_sum = simd_sum(sum_of(weight));
  const float bias_sum = simd_sum(sum_of(bias));
  if (lane == 0) {
    sums[channel] = weight_sum;
    sums[long(sizes.rows) * channels_of_group + channel] = bias_sum;
  }
}

struct Totals {
  uint columns;
  uint blocks;
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
  to[in_grid.x] = T(sum);
}

// The same where there are few columns for a device: threads below each other, at most 32 of 32
// columns, share the blocks.
template <typename T>
[[kernel]] void shared_parameter_sums(
    device const float* sums [[buffer(0)]], device T* weight_gradient [[buffer(1)]],
    device T* bias_gradient [[buffer(2)]], constant Totals& sizes [[buffer(3)]],
    uint2 in_grid [[thread_position_in_grid]], uint2 group [[threadgroup_position_in_grid]],
    uint2 in_group [[thread_position_in_threadgroup]], uint2 threads [[threads_per_threadgroup]]) {
  threadgroup float partial[32 * 32];
  sums += long(group.y) * sizes.columns * sizes.blocks + in_grid.x;
  float sum = 0.0f;
  constexpr uint loads = 8;  // on their way at once
  uint block = in_group.y;
  for (; block + (loads - 1) * threads.y < sizes.blocks; block += loads * threads.y) {
    float some[loads];
#pragma unroll
    for (uint i = 0; i < loads; ++i) some[i] = sums[long(block + i * threads.y) * sizes.columns];
#pragma unroll
    for (uint i = 0; i < loads; ++i) sum += some[i];
  }
  for (; block < sizes.blocks; block += threads.y) sum += sums[long(block) * sizes.columns];
  partial[in_group.y * 32 + in_group.x] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (in_group.y != 0) return;
  for (uint i = 1; i < threads.y; ++i) sum += partial[i * 32 + in_group.x];
  device T* to = group.y == 0 ? weight_gradient : bias_gradient;
  to[in_grid.x] = T(sum);
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
#define BLOCKS(name, N, biases, held, word, width, T)                  \
  NORM_INSTANCE(name "_blocks_" #held "_whole_" word #T,               \
                norm_blocks_backward<T, N, biases, true, held, width>) \
  NORM_INSTANCE(name "_blocks_" #held "_" word #T,                     \
                norm_blocks_backward<T, N, biases, false, held, width>)
#define BLOCKS_OF_EACH(held, word, width, T)                                    \
  BLOCKS("rms_norm_backward_weight_sums", Rms, false, held, word, width, T)     \
  BLOCKS("layer_norm_backward_weight_sums", Layer, false, held, word, width, T) \
  BLOCKS("layer_norm_backward_sums", Layer, true, held, word, width, T)
#define BLOCKS_OF_TYPE(word, width, T) \
  BLOCKS_OF_EACH(16, word, width, T)   \
  BLOCKS_OF_EACH(32, word, width, T)   \
  NORM_INSTANCE("bias_sums_" word #T, bias_sums<T, width>)

BLOCKS_OF_TYPE("vec4_", 4, float)
BLOCKS_OF_TYPE("vec8_", 8, half)
BLOCKS_OF_TYPE("vec8_", 8, bfloat)

NORMS_OF_TYPE(float)
NORMS_OF_TYPE(half)
NORMS_OF_TYPE(bfloat)
