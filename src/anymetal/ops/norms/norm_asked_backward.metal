// The gradients of norms, for rows that a threadgroup asks for long before it comes to them: what
// is on its way, and the row at hand, lie in places of their own (shared/ahead.h) and take no
// registers. Those are for the sums that the gradients of weight and bias are made of.
//
// As in norm_blocks_backward, threadgroups take rows by turns. Rows are whole: every thread has as
// many elements of each, and they follow each other.
#include "shared/row_gradients.h"

// What a thread asks for. A row has `parts`, of `accesses` of 16 bytes of x and of the gradient
// each, and there is room for `room` parts; for the weights of all accesses but the first `kept`;
// and for elements that are near the mean of each row of which a part is on its way.
template <typename T, typename N, uint accesses, uint width, uint threads, uint parts, uint room,
          uint kept>
struct Stream {
  static constexpr constant uint distance = 32 * width;
  static constexpr constant uint weights_at = 2 * accesses * room;
  static constexpr constant uint near_at = weights_at + parts * accesses - kept;
  static constexpr constant uint rows_ahead = (room + parts - 1) / parts;
  using Places = Asked<near_at + (N::centred ? rows_ahead : 0), threads>;

  device const T* x;  // of the first row, from its beginning on
  device const T* gradient;
  device const T* weight;
  uint first;  // the thread's first element
  uint lane;

  void ask_weights() const thread {
#pragma unroll
    for (uint i = kept; i < parts * accesses; ++i)
      Places::ask(weights_at + i - kept, weight + first + i * distance);
  }
  void take_weights(thread float4* values, uint i) const thread {
    read(values, Places::take(weights_at + i - kept, weight + first + i * distance));
  }

  // `at` is where the part of a row begins.
  void ask(uint place, uint i, long at) const thread {
    Places::ask(slot(place, i), x + at + first + i * distance);
    Places::ask(slot(place, i) + 1, gradient + at + first + i * distance);
  }
  void take(thread float4* values, thread float4* dy, uint place, uint i, long at) const thread {
    read(values, Places::take(slot(place, i), x + at + first + i * distance));
    read(dy, Places::take(slot(place, i) + 1, gradient + at + first + i * distance));
  }

  // Of a row that begins there.
  void ask_near(uint turn, long at) const thread {
    if constexpr (N::centred) Places::ask(near_at + turn % rows_ahead, near_of(at));
  }
  float take_near(uint turn, long at) const thread {
    if constexpr (!N::centred) return 0.0f;
    float4 some[Access<width>::parts];
    read(some, Places::take(near_at + turn % rows_ahead, near_of(at)));
    if constexpr (sizeof(T) == 4) return lanes_sum(sum_of(some[0])) * (1.0f / 128.0f);
    return sum_of(some[0] + some[Access<width>::parts - 1]) * 0.125f;
  }

  static void read(thread float4* values, uint4 words) {
    if constexpr (width == 4)
      values[0] = as_type<float4>(words);
    else
      Lying<T, width>::read(values, words);
  }

 private:
  static uint slot(uint place, uint i) { return (place * accesses + i) * 2; }
  // Four elements a lane, or eight for all, where they have 16 bits and show less.
  device const T* near_of(long at) const thread {
    return x + at + (sizeof(T) == 4 ? lane * width : 0);
  }
};

template <typename T, typename N, bool biases, uint held_elements, uint width, uint threads,
          uint parts, uint room, uint kept, uint fence, uint most>
[[kernel, max_total_threads_per_threadgroup(most)]] void norm_asked_backward(
    device const T* gradient [[buffer(0)]], device const T* x [[buffer(1)]],
    device const T* weight [[buffer(2)]], device T* x_gradient [[buffer(3)]],
    device float* block_sums [[buffer(4)]], constant Sizes& sizes [[buffer(5)]],
    uint2 group [[threadgroup_position_in_grid]], uint2 in_group [[thread_position_in_threadgroup]],
    uint2 group_size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  using Some = Access<width>;
  using Raw = Lying<T, width>;
  constexpr uint accesses = held_elements / width, each = accesses / parts;
  constexpr uint vectors = Some::parts, all = accesses * vectors, count = RowSums<N>::count;
  constexpr uint places = count * (threads / 32);
  using Rows = Stream<T, N, each, width, threads, parts, room, kept>;
  constexpr uint part_elements = each * Rows::distance;
  threadgroup float scratch[2 * places];  // for rows by turns
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint columns = sizes.columns;
  const uint first = (simd * accesses * 32 + lane) * width;
  const uint turns = (sizes.rows - group.y + sizes.blocks - 1) / sizes.blocks;
  const long start = long(group.y) * columns, step = long(sizes.blocks) * columns;
  const float share = 1.0f / float(columns);
  const Rows rows = {x, gradient, weight, first, lane};
  rows.ask_weights();
#pragma unroll
  for (uint part = 0; part < room; ++part) {
    const long at = start + part / parts * step;
    if (part / parts < turns) {
      if (part % parts == 0) rows.ask_near(part / parts, at);
#pragma unroll
      for (uint i = 0; i < each; ++i) rows.ask(part, i, at + part % parts * part_elements);
    }
    Rows::Places::close();
  }
  typename Raw::type weights[kept ? kept : 1];
  float4 weight_sums[all], bias_sums[biases ? all : 1];
#pragma unroll
  for (uint i = 0; i < kept; ++i) weights[i] = Raw::load(weight + first + i * Rows::distance);
#pragma unroll
  for (uint i = 0; i < all; ++i) weight_sums[i] = bias_sums[biases ? i : 0] = float4(0.0f);

  uint place = 0;
  for (uint turn = 0; turn < turns; ++turn) {
    const long at = start + turn * step;
    float4 values[vectors], dy[vectors], w[vectors];
    RowSums<N> found;
    float shift = 0.0f;
    uint taken = place;
#pragma unroll
    for (uint part = 0; part < parts; ++part) {
      Rows::Places::await(room - 1 - part);
      if (part == 0) shift = rows.take_near(turn, at);
#pragma unroll
      for (uint i = 0; i < each; ++i) {
        const uint index = part * each + i;
        if (fence & 1) simdgroup_barrier(mem_flags::mem_none);
        rows.take(values, dy, taken, i, at + part * part_elements);
        if (index < kept)
          Raw::read(w, weights[index]);
        else
          rows.take_weights(w, index);
#pragma unroll
        for (uint v = 0; v < vectors; ++v) found.add(values[v] - shift, dy[v] * w[v]);
      }
      taken = taken + 1 == room ? 0 : taken + 1;
    }
    float sums[4];
#pragma unroll
    for (uint i = 0; i < count; ++i) sums[i] = found.of[i].x + found.of[i].y;
    exchange_team_sums<count, threads / 32>(sums, team, scratch + turn % 2 * places);
    const Multiples multiples =
        multiples_of<N>(sums, sizeof(T) == 4 ? 0.0f : shift, share, sizes.eps);
#pragma unroll
    for (uint part = 0; part < parts; ++part) {
      const long from = at + part * part_elements;
      const uint later = (part + room) / parts, later_part = (part + room) % parts;
      const bool comes = turn + later < turns;
      const long next = at + later * step;
      if (comes && later_part == 0) rows.ask_near(turn + later, next);
#pragma unroll
      for (uint i = 0; i < each; ++i) {
        const uint index = part * each + i;
        if (fence & 2) simdgroup_barrier(mem_flags::mem_none);
        rows.take(values, dy, place, i, from);
        if (index < kept)
          Raw::read(w, weights[index]);
        else
          rows.take_weights(w, index);
        if (comes) rows.ask(place, i, next + later_part * part_elements);
#pragma unroll
        for (uint v = 0; v < vectors; ++v) {
          const uint j = index * vectors + v;
          if (sizeof(T) == 4 && N::centred) values[v] -= shift;
          const float4 normal =
              fma(values[v], float4(multiples.reciprocal), float4(multiples.normal_offset));
          weight_sums[j] = fma(dy[v], normal, weight_sums[j]);
          if constexpr (biases) bias_sums[j] += dy[v];
          const float4 rest =
              fma(values[v], float4(multiples.of_difference), float4(multiples.constant_part));
          values[v] = fma(dy[v] * w[v], float4(multiples.reciprocal), rest);
        }
        Some::store(x_gradient + from + first + i * Rows::distance, values);
      }
      Rows::Places::close();
      place = place + 1 == room ? 0 : place + 1;
    }
  }
#pragma unroll
  for (uint i = 0; i < accesses; ++i) {
    const long at = long(group.y) * columns + first + i * Rows::distance;
    Some::store(block_sums + at, weight_sums + i * vectors);
    if (biases)
      Some::store(block_sums + long(sizes.blocks) * columns + at,
                  bias_sums + (biases ? i * vectors : 0));
  }
}
