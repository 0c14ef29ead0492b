// Norms of whole rows that are asked for ahead, by turns: while a row is written, those behind it
// are on their way.
#include "shared/asked_rows.h"
#include "shared/moments.h"

// The most elements that are asked for at once, for each that a thread has of a row.
constant constexpr uint asked_elements = 5;
constant constexpr uint of_weight = 0, of_bias = 1;

// A thread's part of the sums of squared differences, and of differences where a mean is taken
// away.
template <typename N, typename Rows>
inline void add_up(thread float* sums, thread const Rows& rows, uint awaited, uint place, uint turn,
                   float shift) {
  float4 values[Rows::vectors];
  float2 squares = float2(0.0f), sum = squares;
  Rows::Places::await(awaited);
#pragma unroll
  for (uint i = 0; i < Rows::accesses; ++i) {
    rows.take(values, 0, place, i, turn, 0);
#pragma unroll
    for (uint v = 0; v < Rows::vectors; ++v) {
      const float4 difference = values[v] - shift;
      squares = fma(difference.zw, difference.zw, fma(difference.xy, difference.xy, squares));
      if constexpr (N::centred) sum = (sum + difference.xy) + difference.zw;
    }
  }
  sums[0] = squares.x + squares.y;
  if constexpr (N::centred) sums[1] = sum.x + sum.y;
}

// The moments of a row, once all threads have shared their sums.
template <typename N, uint count, uint most>
inline Moments moments_of(thread float* sums, float shift, constant Sizes& sizes,
                          thread const Team& team, threadgroup const float* scratch) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  take_team_sums<count, most>(sums, team, scratch);
  const float share = fast::divide(1.0f, float(sizes.columns));
  const float mean = N::centred ? sums[count - 1] * share : 0.0f;
  return {shift, mean, quick_reciprocal(sums[0] * share, mean, sizes.eps)};
}

// The normalised row. What has been used of it makes room.
template <typename N, typename Rows, typename T>
inline void write_row(thread const Rows& rows, uint place, uint turn, thread const Moments& moments,
                      device T* y) {
#pragma unroll
  for (uint i = 0; i < Rows::accesses; ++i) {
    float4 values[Rows::vectors], w[Rows::vectors], b[Rows::vectors];
    rows.take(values, 0, place, i, turn, 0);
    rows.take_parameter(w, of_weight, 0, i);
    if constexpr (N::centred) rows.take_parameter(b, of_bias, 0, i);
    rows.ask_next(place, i, turn, 0);
#pragma unroll
    for (uint v = 0; v < Rows::vectors; ++v) {
      if constexpr (N::centred)
        values[v] = fma(moments.normal(values[v]), w[v], b[v]);
      else
        values[v] = values[v] * moments.reciprocal * w[v];
    }
    Access<Rows::width>::store(y + rows.at(turn, 0) + i * Rows::distance, values);
  }
  Rows::Places::close();
}

// A row's sums are taken before the row before it is written: nobody waits long for them, or at the
// barrier behind.
template <typename T, typename N, uint held_elements, uint room, uint threads>
[[kernel, max_total_threads_per_threadgroup(threads)]] void norm_asked(
    device T* x [[buffer(0)]], device const T* weight [[buffer(1)]],
    device const T* bias [[buffer(2)]], device T* y [[buffer(3)]],
    constant Sizes& sizes [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
    uint2 in_group [[thread_position_in_threadgroup]], uint2 group_size [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]]) {
  constexpr uint width = 16 / sizeof(T), most = threads / 32;
  constexpr uint count = N::centred ? 2 : 1, places = count * most;
  using Rows = AskedRows<T, 1, count, held_elements / width, 1, room, threads>;
  static_assert(Rows::Places::bytes <= asked_elements * sizeof(T) * held_elements * threads,
                "the host asks whether there is room");
  threadgroup float scratch[2 * places];  // for rows by turns
  const Team team = {in_group.x, group_size.x, lane, simd, simdgroups};
  const uint columns = sizes.columns, first = simd * Rows::elements + lane * width;
  const uint turns = (sizes.rows - group.y + sizes.blocks - 1) / sizes.blocks;
  const long start = long(group.y) * columns, step = long(sizes.blocks) * columns;
  Rows rows = {{x + start + first}, {weight + first}, step, turns};
  rows.parameter[count - 1] = (N::centred ? bias : weight) + first;
  rows.begin();
  y += start + first;

  NearMeans<T, N::centred> means = {x + start + lane, step, turns, 0.0f};
  float shift = means.first(), sums[count];
  add_up<N>(sums, rows, room - 1, 0, 0, shift);
  share_team_sums<count>(sums, team, scratch);
  float next_shift = means.next(0);
  uint place = 0;
  for (uint turn = 0; turn < turns; ++turn) {
    const uint next = turn + 1;
    const Moments moments =
        moments_of<N, count, most>(sums, shift, sizes, team, scratch + turn % 2 * places);
    if (next < turns) {
      shift = next_shift;
      add_up<N>(sums, rows, room - 2, Rows::behind(place), next, shift);
      share_team_sums<count>(sums, team, scratch + next % 2 * places);
      next_shift = means.next(next);
    }
    write_row<N>(rows, place, turn, moments, y);
    place = Rows::behind(place);
  }
}

// --- instances -----------------------------------------------------------------------------------

#define ASKED_INSTANCE(name, N, held, room, threads, T)                                          \
  template [[host_name(name "_asked_" #held "_" #threads                                         \
                            "_" #T)]] [[kernel]] decltype(norm_asked<T, N, held, room, threads>) \
      norm_asked<T, N, held, room, threads>;
#define ASKED(held, room, threads, T)                     \
  ASKED_INSTANCE("rms_norm", Rms, held, room, threads, T) \
  ASKED_INSTANCE("layer_norm", Layer, held, room, threads, T)
#define ASKED_OF_TYPE(T) \
  ASKED(16, 3, 256, T)   \
  ASKED(16, 3, 512, T)   \
  ASKED(32, 3, 256, T)   \
  ASKED(32, 3, 512, T)   \
  ASKED(16, 3, 1024, T)

ASKED_OF_TYPE(half)
ASKED_OF_TYPE(bfloat)
ASKED(8, 3, 512, float)
ASKED(16, 3, 256, float)
ASKED(16, 3, 512, float)
