// Rows of a norm's gradient by turns: a threadgroup takes every so many-th of them, one or two at a
// time, and what they give to the gradients of weight and bias stays in its registers.
//
// Barriers are what rows wait for, and registers: all that is needed of a row is summed up in one
// pass, and weights are read again.
#pragma once
#include "shared/ahead.h"
#include "shared/moments.h"

// No more, so that a thread may have as many registers as rows and their sums need.
constant constexpr uint most_block_threads = 512;
constant constexpr uint most_block_simdgroups = most_block_threads / 32;

// What a thread has of a row of x and of the gradient, as it lies in memory: elements of 16 bits
// take half of the registers that floats would. Past the end of a row its last elements are read
// again, and not used. Accesses of a simdgroup stand side by side, so that a thread's are a fixed
// distance apart: one address is enough. What is not among the `kept_x` or `kept_gradient` accesses
// is read twice.
template <typename T, typename N, uint accesses, uint width, uint kept_x, uint kept_gradient>
struct RowInMemory {
  using Raw = Lying<T, width>;
  using Some = Access<width>;
  static constexpr constant bool keeps = kept_x == accesses && kept_gradient == accesses;
  typename Raw::type x[kept_x];
  typename Raw::type gradient[kept_gradient ? kept_gradient : 1];
  device const T* row_x;
  device const T* row_gradient;
  float shift;

  static uint first(thread const Team& team) {
    return (team.simd * accesses * 32 + team.lane) * width;
  }

  template <bool whole>
  void fetch(device const T* x_of_row, device const T* gradient_of_row, uint columns,
             thread const Team& team) thread {
#pragma unroll
    for (uint i = 0; i < accesses; ++i) {
      const uint place = first(team) + i * 32 * width;
      const uint at = whole ? place : min(place, columns - width);
      if (i < kept_x) x[i] = Raw::load(x_of_row + at);
      if (i < kept_gradient) gradient[i] = Raw::load(gradient_of_row + at);
    }
    begin<whole>(x_of_row, gradient_of_row, columns, team);
  }

  // A row of which what is kept is there.
  template <bool whole>
  void begin(device const T* x_of_row, device const T* gradient_of_row, uint columns,
             thread const Team& team) thread {
    row_x = x_of_row + first(team);
    row_gradient = gradient_of_row + first(team);
    // Differences are taken from something near the mean, where it is taken away: the mean of as
    // many elements as lanes. One of them that is far from all others moves it little.
    shift = 0.0f;
    if constexpr (N::centred) {
      const uint at = whole ? team.lane : min(team.lane, columns - 1);
      shift = lanes_sum(float(x_of_row[at])) * (1.0f / 32.0f);
    }
  }

  // The same access of another row of x, which comes next, takes this one's place.
  void replace(uint i, device const T* next) thread {
    if (i < kept_x) x[i] = Raw::load(next + first_of(i));
  }

  void read(thread float4* differences, thread float4* dy, uint i) const thread {
    Raw::read(differences, i < kept_x ? x[i] : Raw::load(row_x + first_of(i)));
    Raw::read(dy, i < kept_gradient ? gradient[i] : Raw::load(row_gradient + first_of(i)));
    if constexpr (N::centred) {
#pragma unroll
      for (uint part = 0; part < Some::parts; ++part) differences[part] -= shift;
    }
  }

  // The same without taking `shift` away, where elements have 16 bits: they are not so near to each
  // other that this would matter in what is linear in them. With `anew` it is computed again from
  // what is kept; `zero` is 0, which a compiler must not know: it would keep what was read before.
  template <bool anew>
  void read_again(thread float4* values, thread float4* dy, uint i, uint zero) const thread {
    if (i < kept_x)
      Raw::read(values, anew ? Raw::anew(x[i], zero) : x[i]);
    else
      Raw::read(values, Raw::load(row_x + zero + first_of(i)));
    if (i < kept_gradient)
      Raw::read(dy, anew ? Raw::anew(gradient[i], zero) : gradient[i]);
    else
      Raw::read(dy, Raw::load(row_gradient + zero + first_of(i)));
    if constexpr (N::centred && sizeof(T) == 4) {
#pragma unroll
      for (uint part = 0; part < Some::parts; ++part) values[part] -= shift;
    }
  }
  float shift_left() const thread { return sizeof(T) == 4 ? 0.0f : shift; }

 private:
  static uint first_of(uint i) { return i * 32 * width; }
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
// the last two of centred norms only. `shift` is what x has been left with of its own, `share` one
// element's part of a mean.
template <typename N>
inline Multiples multiples_of(thread const float* sums, float shift, float share, float eps) {
  const float mean = N::centred ? sums[2] * share : 0.0f;
  const float gradient_mean = N::centred ? sums[3] * share : 0.0f;
  const float reciprocal = quick_reciprocal(sums[0] * share, mean, eps);
  const float product_mean = fma(-mean, gradient_mean, sums[1] * share);
  const float of_difference = -product_mean * reciprocal * reciprocal * reciprocal;
  const float whole_mean = shift + mean;
  return {reciprocal, -whole_mean * reciprocal, of_difference,
          -fma(gradient_mean, reciprocal, whole_mean * of_difference)};
}

inline float2 with_products(float2 sum, float4 a, float4 b) {
  return fma(a.zw, b.zw, fma(a.xy, b.xy, sum));
}

// A thread's part of the sums that multiples_of wants.
template <typename N>
struct RowSums {
  static constexpr constant uint count = N::centred ? 4 : 2;
  float2 of[4] = {0.0f, 0.0f, 0.0f, 0.0f};

  void add(float4 difference, float4 g) thread {
    of[0] = with_products(of[0], difference, difference);
    of[1] = with_products(of[1], g, difference);
    if constexpr (N::centred) {
      of[2] = (of[2] + difference.xy) + difference.zw;
      of[3] = (of[3] + g.xy) + g.zw;
    }
  }
};

// Elements of x and of the gradient that the next turn begins with.
template <typename T>
struct NextRows {
  device const T* x;
  device const T* gradient;
  uint count;

  // A thread asks for a line of 128 bytes.
  void fetch(thread const Team& team) const thread {
    constexpr uint line = 128 / sizeof(T);
    const uint lines = count / line;
    for (uint i = team.index; i < 2 * lines; i += team.size)
      fetch_ahead(i < lines ? x + i * line : gradient + (i - lines) * line);
  }
};

// `together` rows: the gradient of x, and what they give to the sums of the threadgroup. Weights
// are not const, since a compiler that knew that they stay as they are would keep them instead of
// reading them again. In a `whole` row every thread has all its accesses, and there is a weight and
// nothing else: loads that no branch holds up are on their way at once. `weight`, `extra` and
// `x_gradient` begin with what is the thread's; rows of `x_gradient` are `columns` apart where
// there are two. Where a whole row is not kept, what is used of it makes room for the next one at
// once, and what is written leaves the cache before what is read a second time.
template <typename N, bool biases, bool whole, bool late, uint together, uint width, typename T,
          uint accesses, uint kept_x, uint kept_gradient>
inline void add_rows(thread RowInMemory<T, N, accesses, width, kept_x, kept_gradient>* here,
                     thread float4* weight_sums, thread float4* bias_sums, device T* weight,
                     device const T* extra, device T* x_gradient, uint row, constant Sizes& sizes,
                     thread const NextRows<T>& next, thread const Team& team,
                     threadgroup float* scratch) {
  using Some = Access<width>;
  constexpr uint parts = Some::parts, count = RowSums<N>::count;
  constexpr bool keeps = RowInMemory<T, N, accesses, width, kept_x, kept_gradient>::keeps;
  constexpr uint on_their_way = keeps ? 1 : 2;  // accesses whose loads are not put off
  const uint columns = sizes.columns, left = columns - min(columns, here[0].first(team));
  float4 values[parts], dy[parts], w[parts];
  RowSums<N> found[together];
  if (!late) next.fetch(team);
#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    const uint at = i * 32 * width;
    if (!whole && at >= left) break;
    if (whole && i % on_their_way == 0) simdgroup_barrier(mem_flags::mem_none);
    plain_weights_at<N, width, whole>(w, weight, row, at, sizes);
#pragma unroll
    for (uint r = 0; r < together; ++r) {
      here[r].read(values, dy, i);
#pragma unroll
      for (uint part = 0; part < parts; ++part) found[r].add(values[part], dy[part] * w[part]);
    }
  }
  float sums[4 * together];
#pragma unroll
  for (uint r = 0; r < together; ++r)
#pragma unroll
    for (uint i = 0; i < count; ++i) sums[r * count + i] = found[r].of[i].x + found[r].of[i].y;
  exchange_team_sums<together * count, most_block_simdgroups>(sums, team, scratch);
  if (late) next.fetch(team);
  const float share = 1.0f / float(columns);
  Multiples multiples[together];
#pragma unroll
  for (uint r = 0; r < together; ++r)
    multiples[r] = multiples_of<N>(sums + r * count, here[r].shift_left(), share, sizes.eps);

#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    const uint at = i * 32 * width;
    if (!whole && at >= left) break;
    plain_weights_at<N, width, whole>(w, weight, row, at, sizes);
#pragma unroll
    for (uint r = 0; r < together; ++r) {
      here[r].template read_again<N::centred || !keeps>(values, dy, i, sizes.spatial);
      if constexpr (whole && !keeps) here[r].replace(i, next.x);
#pragma unroll
      for (uint part = 0; part < parts; ++part) {
        const uint j = i * parts + part;
        const float4 normal =
            fma(values[part], float4(multiples[r].reciprocal), float4(multiples[r].normal_offset));
        weight_sums[j] = fma(dy[part], normal, weight_sums[j]);
        if constexpr (biases) bias_sums[j] += dy[part];
        const float4 rest = fma(values[part], float4(multiples[r].of_difference),
                                float4(multiples[r].constant_part));
        values[part] = fma(dy[part] * w[part], float4(multiples[r].reciprocal), rest);
      }
      if (!whole && sizes.has_other) {
        float4 other[parts];
        Some::load(other, extra + at);
#pragma unroll
        for (uint part = 0; part < parts; ++part) values[part] += other[part];
      }
      if constexpr (whole && !keeps)
        Width<4>::store_once(x_gradient + at, values[0]);
      else
        Some::store(x_gradient + r * columns + at, values);
    }
  }
}
