// The gradients of norms, for rows that a threadgroup asks for long before it comes to them: what
// is on its way, the rows at hand and the weights lie in places of their own (shared/ahead.h) and
// take no registers. Those are for the sums that the gradients of weight and bias are made of.
//
// As in norm_blocks_backward, threadgroups take rows by turns. Rows are whole: every thread has as
// many elements of each, and they follow each other.
#include "shared/row_gradients.h"

// What a thread asks for. A row has parts, of so many accesses of 16 bytes of x and of the gradient
// each; there is room for some parts, and for the weights.
template <typename T, uint accesses_of_part, uint parts_of_row, uint room_for, uint threads>
struct Asking {
  static constexpr constant uint accesses = accesses_of_part;
  static constexpr constant uint parts = parts_of_row;
  static constexpr constant uint room = room_for;
  static constexpr constant uint width = 16 / sizeof(T);
  static constexpr constant uint distance = 32 * width;  // between a thread's accesses
  static constexpr constant uint elements = accesses * distance;
  static constexpr constant uint weights_at = 2 * accesses * room;
  using Places = Asked<weights_at + parts * accesses, threads>;

  device const T* x;  // from the thread's first element on, like all of these
  device const T* gradient;
  device const T* weight;

  // The weights, and as many parts as there is room for. `step` is the distance between rows.
  void begin(long step, uint turns) const thread {
#pragma unroll
    for (uint i = 0; i < parts * accesses; ++i)
      Places::ask(weights_at + i, weight + i * distance);
#pragma unroll
    for (uint part = 0; part < room; ++part) {
      if (part / parts < turns) {
#pragma unroll
        for (uint i = 0; i < accesses; ++i)
          ask(part, i, part / parts * step + part % parts * elements);
      }
      Places::close();
    }
  }
  // An access of the part of a row that begins at `at`.
  void ask(uint place, uint i, long at) const thread {
    Places::ask(slot(place, i), x + at + i * distance);
    Places::ask(slot(place, i) + 1, gradient + at + i * distance);
  }
  void take(thread float4* values, thread float4* dy, uint place, uint i, long at) const thread {
    read(values, Places::take(slot(place, i), x + at + i * distance));
    read(dy, Places::take(slot(place, i) + 1, gradient + at + i * distance));
  }
  void take_weights(thread float4* w, uint i) const thread {
    read(w, Places::take(weights_at + i, weight + i * distance));
  }
  static uint behind(uint place, uint count = 1) {
    return place + count < room ? place + count : place + count - room;
  }

 private:
  static uint slot(uint place, uint i) { return (place * accesses + i) * 2; }
  static void read(thread float4* values, uint4 words) {
    Lying<T, width>::read(values, as_type<typename Lying<T, width>::type>(words));
  }
};

// Something near the means of rows to come, which differences are taken from: the mean of as many
// elements as lanes. They are read two turns ahead.
template <typename T, typename N>
struct NearMeans {
  device T* x;  // the lane's element of the threadgroup's first row
  long step;
  uint turns;
  float read;

  float first() thread {
    if constexpr (!N::centred) return 0.0f;
    read = float(x[turns > 1 ? step : 0]);
    return mean_of(float(*x));
  }
  float next(uint turn) thread {
    if constexpr (!N::centred) return 0.0f;
    const float found = mean_of(read);
    read = float(x[min(turn + 2, turns - 1) * step]);
    return found;
  }

 private:
  static float mean_of(float value) { return lanes_sum(value) * (1.0f / 32.0f); }
};

// A thread's part of a row's sums. `awaited` batches may be on their way when its first part is
// taken.
template <typename N, typename Rows>
inline void add_up(thread float* sums, thread const Rows& rows, uint awaited, uint place, long at,
                   float shift) {
  constexpr uint vectors = Access<Rows::width>::parts;
  float4 values[vectors], dy[vectors], w[vectors];
  RowSums<N> found;
#pragma unroll
  for (uint part = 0; part < Rows::parts; ++part) {
    Rows::Places::await(awaited - part);
#pragma unroll
    for (uint i = 0; i < Rows::accesses; ++i) {
      rows.take(values, dy, place, i, at + part * Rows::elements);
      rows.take_weights(w, part * Rows::accesses + i);
#pragma unroll
      for (uint v = 0; v < vectors; ++v) found.add(values[v] - shift, dy[v] * w[v]);
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

// The gradient of a row, and what it gives to the sums; as its parts are used, others are asked for,
// of `turns_left` rows with this one.
template <bool biases, typename Rows, typename T>
inline void write_row(thread float4* weight_sums, thread float4* bias_sums,
                      thread const Rows& rows, thread uint& place, long at, long step,
                      uint turns_left, thread const Known& known, device T* x_gradient) {
  constexpr uint vectors = Access<Rows::width>::parts;
  const Multiples multiples = known.multiples;
#pragma unroll
  for (uint part = 0; part < Rows::parts; ++part) {
    const long from = at + part * Rows::elements;
    const uint later = (part + Rows::room) / Rows::parts;
    const long next = at + later * step + (part + Rows::room) % Rows::parts * Rows::elements;
#pragma unroll
    for (uint i = 0; i < Rows::accesses; ++i) {
      float4 values[vectors], dy[vectors], w[vectors];
      rows.take(values, dy, place, i, from);
      rows.take_weights(w, part * Rows::accesses + i);
      if (later < turns_left) rows.ask(place, i, next);
#pragma unroll
      for (uint v = 0; v < vectors; ++v) {
        const uint j = (part * Rows::accesses + i) * vectors + v;
        values[v] -= known.shift;
        const float4 normal =
            fma(values[v], float4(multiples.reciprocal), float4(multiples.normal_offset));
        weight_sums[j] = fma(dy[v], normal, weight_sums[j]);
        if constexpr (biases) bias_sums[j] += dy[v];
        const float4 rest =
            fma(values[v], float4(multiples.of_difference), float4(multiples.constant_part));
        values[v] = fma(dy[v] * w[v], float4(multiples.reciprocal), rest);
      }
      Access<Rows::width>::store(x_gradient + from + i * Rows::distance, values);
    }
    Rows::Places::close();
    place = Rows::behind(place);
  }
}

// With `early` a row's sums are taken before the gradient of the row before it is written, for which
// there must be room: nobody waits long at the barrier behind. x is not const, since a compiler that
// knew that it stays as it is would put off what NearMeans reads.
template <typename T, typename N, bool biases, bool early, uint held_elements, uint parts,
          uint room, uint threads>
[[kernel, max_total_threads_per_threadgroup(most_block_threads)]] void norm_asked_backward(
    device const T* gradient [[buffer(0)]], device T* x [[buffer(1)]],
    device const T* weight [[buffer(2)]], device T* x_gradient [[buffer(3)]],
    device float* block_sums [[buffer(4)]], constant Sizes& sizes [[buffer(5)]],
    uint2 group [[threadgroup_position_in_grid]], uint2 in_group [[thread_position_in_threadgroup]],
    uint2 group_size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  constexpr uint width = 16 / sizeof(T), all = held_elements / 4, most = threads / 32;
  constexpr uint count = RowSums<N>::count, places = count * most;
  using Rows = Asking<T, held_elements / width / parts, parts, room, threads>;
  threadgroup float scratch[2 * places];  // for rows by turns
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint columns = sizes.columns, first = simd * parts * Rows::elements + lane * width;
  const uint turns = (sizes.rows - group.y + sizes.blocks - 1) / sizes.blocks;
  const long start = long(group.y) * columns, step = long(sizes.blocks) * columns;
  const Rows rows = {x + start + first, gradient + start + first, weight + first};
  x_gradient += start + first;
  rows.begin(step, turns);
  float4 weight_sums[all], bias_sums[biases ? all : 1];
#pragma unroll
  for (uint i = 0; i < all; ++i) weight_sums[i] = bias_sums[biases ? i : 0] = float4(0.0f);

  NearMeans<T, N> means = {x + start + lane, step, turns, 0.0f};
  float shift = means.first(), sums[count];
  Known known;
  if (early) {
    add_up<N>(sums, rows, room - 1, 0, 0, shift);
    share_team_sums<count>(sums, team, scratch);
    known = known_of<T, N, most>(sums, shift, sizes, team, scratch);
    shift = means.next(0);
  }
  uint place = 0;
  for (uint turn = 0; turn < turns; ++turn) {
    const uint summed = turn + early;
    threadgroup float* shared = scratch + summed % 2 * places;
    if (summed < turns) {
      constexpr uint before = early ? parts : 0;
      add_up<N>(sums, rows, room - 1 - before, Rows::behind(place, before), summed * step, shift);
      share_team_sums<count>(sums, team, shared);
    }
    if (!early) {
      known = known_of<T, N, most>(sums, shift, sizes, team, shared);
      shift = means.next(turn);
    }
    write_row<biases>(weight_sums, bias_sums, rows, place, turn * step, step, turns - turn, known,
                      x_gradient);
    if (early && summed < turns) {
      known = known_of<T, N, most>(sums, shift, sizes, team, shared);
      shift = means.next(summed);
    }
  }
  // Four sums a lane side by side: the halves of an access of eight elements lie apart.
  block_sums += long(group.y) * columns + simd * parts * Rows::elements + lane * 4;
#pragma unroll
  for (uint i = 0; i < all; ++i) {
    Width<4>::store(block_sums + i * 128, weight_sums[i]);
    if (biases)
      Width<4>::store(block_sums + long(sizes.blocks) * columns + i * 128,
                      bias_sums[biases ? i : 0]);
  }
}

// --- instances -----------------------------------------------------------------------------------

#define ASKED_INSTANCE(name, N, biases, early, held, parts, room, threads, T)             \
  template [[host_name(name "_asked_" #held "_" #threads "_" #T)]] [[kernel]] decltype(   \
      norm_asked_backward<T, N, biases, early, held, parts, room, threads>)               \
      norm_asked_backward<T, N, biases, early, held, parts, room, threads>;
#define ASKED(early, held, parts, room, threads, T)                                           \
  ASKED_INSTANCE("rms_norm_backward_weight_sums", Rms, false, early, held, parts, room,       \
                 threads, T)                                                                  \
  ASKED_INSTANCE("layer_norm_backward_weight_sums", Layer, false, early, held, parts, room,   \
                 threads, T)                                                                  \
  ASKED_INSTANCE("layer_norm_backward_sums", Layer, true, early, held, parts, room, threads, T)
#define ASKED_OF_TYPE(T)          \
  ASKED(true, 16, 1, 3, 256, T)   \
  ASKED(true, 32, 1, 3, 256, T)   \
  ASKED(true, 32, 1, 3, 512, T)

ASKED(false, 32, 4, 5, 256, float)
ASKED(false, 32, 4, 5, 512, float)
ASKED_OF_TYPE(half)
ASKED_OF_TYPE(bfloat)
