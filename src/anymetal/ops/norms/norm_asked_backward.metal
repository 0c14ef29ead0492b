// The gradients of norms, for whole rows that are asked for ahead: registers are left to the sums
// that the gradients of weight and bias are made of. As in norm_blocks_backward, threadgroups take
// rows by turns.
#include "shared/asked_rows.h"
#include "shared/row_gradients.h"

// The most that is asked for at once, for each element that a thread has of a row.
constant constexpr uint asked_bytes = 14;
constant constexpr uint of_x = 0, of_gradient = 1;

// A thread's part of a row's sums. `awaited` batches may be on their way when its first part is
// taken.
template <typename N, typename Rows>
inline void add_up(thread float* sums, thread const Rows& rows, uint awaited, uint place, uint turn,
                   float shift) {
  float4 values[Rows::vectors], dy[Rows::vectors], w[Rows::vectors];
  RowSums<N> found;
#pragma unroll
  for (uint part = 0; part < Rows::parts; ++part) {
    Rows::Places::await(awaited - part);
#pragma unroll
    for (uint i = 0; i < Rows::accesses; ++i) {
      rows.take(values, of_x, place, i, turn, part);
      rows.take(dy, of_gradient, place, i, turn, part);
      rows.take_parameter(w, 0, part, i);
#pragma unroll
      for (uint v = 0; v < Rows::vectors; ++v) found.add(values[v] - shift, dy[v] * w[v]);
    }
    place = Rows::behind(place);
  }
#pragma unroll
  for (uint i = 0; i < RowSums<N>::count; ++i) sums[i] = found.of[i].x + found.of[i].y;
}

// What the sums of all threads tell of a row.
struct Known {
  Multiples multiples;
  float shift;  // that is taken away from x first
};

template <typename T, typename N, uint most>
inline Known known_of(thread float* sums, float shift, constant Sizes& sizes,
                      thread const Team& team, threadgroup const float* scratch) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  take_team_sums<RowSums<N>::count, most>(sums, team, scratch);
  // Elements of 16 bits are not so near to each other that it would matter.
  constexpr bool takes = N::centred && sizeof(T) == 4;
  const float share = 1.0f / float(sizes.columns);
  return {multiples_of<N>(sums, takes ? 0.0f : shift, share, sizes.eps), takes ? shift : 0.0f};
}

// Where a thread's sums over its rows go: four a lane side by side, so that the halves of an access
// of eight elements lie apart.
struct BlockSums {
  device float* weights;
  device float* biases;

  void store(uint i, float4 weight, float4 bias, bool has_biases) const thread {
    Width<4>::store(weights + i * 128, weight);
    if (has_biases) Width<4>::store(biases + i * 128, bias);
  }
};

// The gradient of a row, and what it gives to the sums. What has been used of it makes room for
// others; with the `last` row the sums are written.
template <bool biases, bool last, typename Rows, typename T>
inline void write_row(thread float4* weight_sums, thread float4* bias_sums, thread const Rows& rows,
                      thread uint& place, uint turn, thread const Known& known,
                      device T* x_gradient, thread const BlockSums& block_sums) {
  const Multiples multiples = known.multiples;
#pragma unroll
  for (uint part = 0; part < Rows::parts; ++part) {
#pragma unroll
    for (uint i = 0; i < Rows::accesses; ++i) {
      float4 values[Rows::vectors], dy[Rows::vectors], w[Rows::vectors];
      rows.take(values, of_x, place, i, turn, part);
      rows.take(dy, of_gradient, place, i, turn, part);
      rows.take_parameter(w, 0, part, i);
      if (!last) rows.ask_next(place, i, turn, part);
#pragma unroll
      for (uint v = 0; v < Rows::vectors; ++v) {
        const uint j = (part * Rows::accesses + i) * Rows::vectors + v, of_bias = biases ? j : 0;
        values[v] -= known.shift;
        const float4 normal =
            fma(values[v], float4(multiples.reciprocal), float4(multiples.normal_offset));
        weight_sums[j] = fma(dy[v], normal, weight_sums[j]);
        if constexpr (biases) bias_sums[j] += dy[v];
        const float4 rest =
            fma(values[v], float4(multiples.of_difference), float4(multiples.constant_part));
        values[v] = fma(dy[v] * w[v], float4(multiples.reciprocal), rest);
        if (last) block_sums.store(j, weight_sums[j], bias_sums[of_bias], biases);
      }
      Access<Rows::width>::store(x_gradient + rows.at(turn, part) + i * Rows::distance, values);
    }
    Rows::Places::close();
    place = Rows::behind(place);
  }
}

// With `early` a row's sums are taken before the gradient of the row before it is written, for
// which there must be room: nobody waits long for them, or at the barrier behind.
template <typename T, typename N, bool biases, bool early, uint held_elements, uint parts,
          uint room, uint threads>
[[kernel, max_total_threads_per_threadgroup(most_block_threads)]] void norm_asked_backward(
    device const T* gradient [[buffer(0)]], device T* x [[buffer(1)]],
    device const T* weight [[buffer(2)]], device T* x_gradient [[buffer(3)]],
    device float* sums_of_blocks [[buffer(4)]], constant Sizes& sizes [[buffer(5)]],
    uint2 group [[threadgroup_position_in_grid]], uint2 in_group [[thread_position_in_threadgroup]],
    uint2 group_size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  constexpr uint width = 16 / sizeof(T), all = held_elements / 4, most = threads / 32;
  constexpr uint count = RowSums<N>::count, places = count * most, before = early ? parts : 0;
  using Rows = AskedRows<T, 2, 1, held_elements / width / parts, parts, room, threads>;
  static_assert(Rows::Places::bytes <= asked_bytes * held_elements * threads,
                "the host asks whether there is room");
  threadgroup float scratch[2 * places];  // for rows by turns
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint columns = sizes.columns, first = simd * parts * Rows::elements + lane * width;
  const uint turns = (sizes.rows - group.y + sizes.blocks - 1) / sizes.blocks, end = turns - 1;
  const long start = long(group.y) * columns, step = long(sizes.blocks) * columns;
  const Rows rows = {{x + start + first, gradient + start + first}, {weight + first}, step, turns};
  rows.begin();
  x_gradient += start + first;
  sums_of_blocks += start + simd * parts * Rows::elements + lane * 4;
  const BlockSums block_sums = {sums_of_blocks, sums_of_blocks + step};
  float4 weight_sums[all], bias_sums[biases ? all : 1];
#pragma unroll
  for (uint i = 0; i < all; ++i) weight_sums[i] = bias_sums[biases ? i : 0] = float4(0.0f);

  NearMeans<T, N::centred> means = {x + start + lane, step, turns, 0.0f};
  float shift = means.first(), next_shift = 0.0f, sums[count];
  if (early) {
    add_up<N>(sums, rows, room - 1, 0, 0, shift);
    share_team_sums<count>(sums, team, scratch);
    next_shift = means.next(0);
  }
  Known known;
  uint place = 0;
  for (uint turn = 0; turn < end; ++turn) {
    threadgroup float* shared = scratch + turn % 2 * places;
    if (!early) {
      add_up<N>(sums, rows, room - 1, place, turn, shift);
      share_team_sums<count>(sums, team, shared);
    }
    known = known_of<T, N, most>(sums, shift, sizes, team, shared);
    if (early) {
      shift = next_shift;
      add_up<N>(sums, rows, room - 1 - before, Rows::behind(place, before), turn + 1, shift);
      share_team_sums<count>(sums, team, scratch + (turn + 1) % 2 * places);
    }
    next_shift = means.next(turn + early);
    write_row<biases, false>(weight_sums, bias_sums, rows, place, turn, known, x_gradient,
                             block_sums);
    if (!early) shift = next_shift;
  }
  threadgroup float* shared = scratch + end % 2 * places;
  if (!early) {
    add_up<N>(sums, rows, room - 1, place, end, shift);
    share_team_sums<count>(sums, team, shared);
  }
  known = known_of<T, N, most>(sums, shift, sizes, team, shared);
  write_row<biases, true>(weight_sums, bias_sums, rows, place, end, known, x_gradient, block_sums);
}

// --- instances -----------------------------------------------------------------------------------

#define ASKED_INSTANCE(name, N, biases, early, held, parts, room, threads, T)                  \
  template [[host_name(                                                                        \
      name "_asked_" #held "_" #threads                                                        \
           "_" #T)]] [[kernel]] decltype(norm_asked_backward<T, N, biases, early, held, parts, \
                                                             room, threads>)                   \
      norm_asked_backward<T, N, biases, early, held, parts, room, threads>;
#define ASKED(early, held, parts, room, threads, T)                                              \
  ASKED_INSTANCE("rms_norm_backward_weight_sums", Rms, false, early, held, parts, room, threads, \
                 T)                                                                              \
  ASKED_INSTANCE("layer_norm_backward_weight_sums", Layer, false, early, held, parts, room,      \
                 threads, T)                                                                     \
  ASKED_INSTANCE("layer_norm_backward_sums", Layer, true, early, held, parts, room, threads, T)
#define ASKED_OF_TYPE(T)         \
  ASKED(true, 16, 1, 3, 256, T)  \
  ASKED(false, 32, 4, 6, 256, T) \
  ASKED(false, 32, 4, 6, 512, T)

ASKED(false, 32, 8, 10, 256, float)
ASKED(false, 32, 8, 10, 512, float)
ASKED_OF_TYPE(half)
ASKED_OF_TYPE(bfloat)
