// Attention over keys and values that lie in blocks: a table a sequence says which block holds
// which of its keys.
//
// A threadgroup has one row or four (query heads of one or several queries) that share a sequence
// and a head of keys, so that a key is read once for all of them. Its simdgroups take 32 keys in
// turn: the lanes share the elements of a key, and lane j keeps the score of key j, so that the
// softmax is 32 keys wide. No loop over keys has a branch; what is optional happens once in 32
// keys.
//
// Whatever the tables, lengths and starts hold, nothing outside the tensors is read: lengths end
// with the table, queries with the tensor, and a key in a block that does not exist makes its row
// NaN.
#include "shared/paged_keys.h"

constant constexpr uint most_simds = 8;
constant constexpr uint most_threads = most_simds * lanes;

// --- results -------------------------------------------------------------------------------------

// The element that is a lane's i-th: with a team, eight neighbours each; else 32 apart.
template <uint team>
inline uint element(uint lane, uint i) {
  return team ? lane % (team ? team : 1) * wide_steps + i : lane + lanes * i;
}

// The result of a row, or that of a part of its keys, which paged_attention_reduce takes.
template <typename T>
struct Result {
  device T* output;
  device float* partial;
  device float2* states;
  device const float* sinks;
  float value_scale;
  uint part;

  void store(Row row, State<float> state, uint at, float sum,
             constant Numbers& numbers) const thread {
    const uint index = row.token * numbers.kv_heads * numbers.group + row.head;
    if (numbers.parts == 1) {
      const float weight = weight_of(state, value_scale, row.head, sinks, numbers.has_sinks);
      output[index * numbers.size + at] = T(sum * weight);
      return;
    }
    const uint of_part = index * numbers.parts + part;
    partial[of_part * numbers.size + at] = sum;
    if (at == 0) states[of_part] = float2(state.largest, state.total);
  }
};

// One row of a simdgroup that has seen all keys.
template <typename T, uint steps>
inline void store_alone(Row row, State<float> state, thread const float* sums,
                        thread const Result<T>& result, constant Numbers& numbers, uint lane) {
  if (row.token >= numbers.tokens) return;
  for (uint i = 0; i < steps; ++i) {
    const uint at = lane + lanes * i;
    if (at < numbers.size) result.store(row, state, at, sums[i], numbers);
  }
}

// One row, of which each simdgroup has seen some keys: added up in threadgroup memory.
template <typename T, uint steps, uint team>
inline void store_merged(Row row, State<float> state, thread const float* own,
                         thread const Result<T>& result, constant Numbers& numbers, uint lane,
                         uint simd, uint simds, threadgroup float* sums,
                         threadgroup float2* states) {
  if (lane == 0) states[simd] = float2(state.largest, state.total);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  State<float> whole = {-INFINITY, 0.0f};
  for (uint i = 0; i < simds; ++i) whole = merge(whole, {states[i].x, states[i].y});
  const float factor = exp(state.largest - base_of(whole.largest));
  constexpr uint room = team ? team * wide_steps : steps * lanes;
  if (team == 0 || lane < team)
    for (uint i = 0; i < steps; ++i) sums[simd * room + element<team>(lane, i)] = own[i] * factor;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint at = simd * lanes + lane; at < numbers.size; at += simds * lanes) {
    float sum = 0.0f;
    for (uint i = 0; i < simds; ++i) sum += sums[i * room + at];
    if (row.token < numbers.tokens) result.store(row, whole, at, sum, numbers);
  }
}

// --- kernels -------------------------------------------------------------------------------------

// What a lane knows of its rows before it has seen a key, and the keys that one of them sees.
template <typename T, uint rows, uint steps, bool whole, uint team>
inline uint2 begin_rows(thread Rows<rows, steps>& all, thread Limits<rows>& limits,
                        device const T* query, device const float* slopes, float query_scale,
                        uint length, uint kv_head, thread const Tile& tile,
                        constant Numbers& numbers, uint lane) {
  uint begin = length, end = 0;
  for (uint r = 0; r < rows; ++r) {
    const Row row = row_of(tile.first_row + r, kv_head, length, tile, numbers);
    const uint token = min(row.token, numbers.tokens - 1);
    device const T* head =
        query + token * numbers.strides.query_token + row.head * numbers.strides.query_head;
#pragma unroll
    for (uint i = 0; i < steps; ++i) {
      const uint at = element<team>(lane, i);
      const float value = whole || at < numbers.size ? float(head[at]) : 0.0f;
      set_row(all.query[i], r, value * query_scale);
    }
    set_row(limits.slope, r, numbers.has_slopes ? slopes[row.head] : 0.0f);
    set_row(limits.position, r, row.position);
    set_row(limits.begin, r, row.begin);
    set_row(limits.end, r, row.end);
    begin = row.begin < row.end ? min(begin, row.begin) : begin;
    end = max(end, row.end);
  }
  using Floats = typename Each<rows>::Floats;
#pragma unroll
  for (uint i = 0; i < steps; ++i) all.sums[i] = Floats(0.0f);
  all.state = {Floats(-INFINITY), Floats(0.0f)};
  return uint2(begin, end);
}

// Threadgroups: parts, heads of keys, tiles of rows. A `team` of 0 is no team: the lanes of a
// simdgroup share a key.
template <typename T, typename C, uint rows, uint steps, bool whole, uint team = 0,
          bool matrices = false>
[[kernel, max_total_threads_per_threadgroup(most_threads)]] void paged_attention(
    device const T* query [[buffer(0)]], device const typename C::storage* key_cache [[buffer(1)]],
    device const typename C::storage* value_cache [[buffer(2)]],
    device const int* tables [[buffer(3)]], device const int* lengths [[buffer(4)]],
    device const int* starts [[buffer(5)]], device const float* slopes [[buffer(6)]],
    device const float* sinks [[buffer(7)]], device const float* key_scales [[buffer(8)]],
    device const float* value_scales [[buffer(9)]], device T* output [[buffer(10)]],
    device float* partial [[buffer(11)]], device float2* states [[buffer(12)]],
    constant Numbers& numbers [[buffer(13)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  using Floats = typename Each<rows>::Floats;
  threadgroup uint2 offsets[most_threads];
  threadgroup Floats weights[most_threads];
  threadgroup float shared_sums[most_threads * steps];
  threadgroup float2 shared_states[most_simds];
  const uint kv_head = group.y;
  const Tile tile = tile_of(group.z, rows, starts, numbers);
  if (tile.first_row >= tile.queries * numbers.group) return;
  const int most = int(numbers.table_width * numbers.block_size);
  const uint length = uint(clamp(lengths[tile.sequence], 0, most));
  device const int* table = tables + tile.sequence * numbers.table_width;
  key_cache += kv_head * numbers.strides.key_head;
  value_cache += kv_head * numbers.strides.value_head;

  Rows<rows, steps> all;
  Limits<rows> limits;
  const float query_scale = numbers.scale * scale_at(key_scales, numbers.has_key_scales, kv_head);
  const uint2 seen = begin_rows<T, rows, steps, whole, team>(
      all, limits, query, slopes, query_scale, length, kv_head, tile, numbers, lane);
  const uint begin = max(seen.x, group.x * numbers.part);
  const uint end = group.x + 1 < numbers.parts ? min(seen.y, (group.x + 1) * numbers.part) : seen.y;

  Keys<rows> keys = {0, 0, false, offsets + simd * lanes, weights + simd * lanes};
  if constexpr (matrices) {
    // In threadgroup memory, since registers are few.
    threadgroup Limits<rows> shared_limits[1];
    if (simd == 0 && lane == 0) shared_limits[0] = limits;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    Walk<T, rows, team> walk = {shared_limits, table, key_cache, value_cache,
                                query_scale,   end,   lane};
    walk.matrices.template load_queries<rows>(query, kv_head, length, tile, numbers, lane_of(lane));
    uint start = begin + simd * lanes;
    if (start < end) {
      walk.begin(keys, start, numbers);
      for (; start + simds * lanes < end; start += simds * lanes)
        walk.template step<false>(all, keys, start + simds * lanes, numbers);
      walk.template step<true>(all, keys, end, numbers);
    }
  } else {
    for (uint start = begin + simd * lanes; start < end; start += simds * lanes) {
      place_keys(keys, block_of(start, end, lane, table, numbers), start, end, lane, numbers);
      Floats scores;
      if constexpr (team > 0) {
        scores = wide_scores<T, rows, team>(all, keys, key_cache, lane);
      } else {
        scores = scores_of<C, rows, steps, whole>(all, keys, key_cache, numbers.size, lane);
      }
      weigh_keys(all, limits, keys, scores, numbers.softcap, lane);
      if constexpr (team > 0) {
        add_wide_values<T, rows, team>(all, keys, value_cache, lane);
      } else {
        add_values<C, rows, steps, whole>(all, keys, value_cache, numbers.size, lane);
      }
    }
  }

  const Floats total = simd_sum(all.state.total);
  const float value_scale = scale_at(value_scales, numbers.has_value_scales, kv_head);
  const Result<T> result = {output, partial, states, sinks, value_scale, group.x};
  if constexpr (team > 0) {
#pragma unroll
    for (uint i = 0; i < steps; ++i)
#pragma unroll
      for (uint mask = team; mask < lanes; mask *= 2)
        all.sums[i] += simd_shuffle_xor(all.sums[i], mask);
  }
  for (uint r = 0; r < rows; ++r) {
    const Row row = row_of(tile.first_row + r, kv_head, length, tile, numbers);
    const State<float> state = {of_row(all.state.largest, r), of_row(total, r)};
    float sums[steps];
    for (uint i = 0; i < steps; ++i) sums[i] = of_row(all.sums[i], r);
    if (simds == 1 && team == 0) {
      store_alone<T, steps>(row, state, sums, result, numbers, lane);
    } else {
      store_merged<T, steps, team>(row, state, sums, result, numbers, lane, simd, simds,
                                   shared_sums, shared_states);
    }
  }
}

// The parts of a row become its result: a simdgroup a row.
template <typename T>
[[kernel]] void paged_attention_reduce(
    device const float* partial [[buffer(0)]], device const float2* states [[buffer(1)]],
    device const float* sinks [[buffer(2)]], device const float* value_scales [[buffer(3)]],
    device T* output [[buffer(4)]], constant Numbers& numbers [[buffer(5)]],
    uint in_grid [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint row = in_grid / lanes;
  const uint head = row % (numbers.kv_heads * numbers.group);
  states += row * numbers.parts;
  partial += row * numbers.parts * numbers.size;
  State<float> whole = {-INFINITY, 0.0f};
  for (uint i = 0; i < numbers.parts; ++i) whole = merge(whole, {states[i].x, states[i].y});
  const float value_scale = scale_at(value_scales, numbers.has_value_scales, head / numbers.group);
  const float weight = weight_of(whole, value_scale, head, sinks, numbers.has_sinks);
  for (uint at = lane; at < numbers.size; at += lanes) {
    float sum = 0.0f;
    for (uint i = 0; i < numbers.parts; ++i)
      sum = fma(partial[i * numbers.size + at], exp(states[i].x - base_of(whole.largest)), sum);
    output[row * numbers.size + at] = T(sum * weight);
  }
}
INSTANTIATE(paged_attention_reduce)

// --- instances: paged_attention_<rows>_<steps>_<whole or tail>_<dtype>_<dtype of the caches>, and
// paged_attention_<rows>_<lanes>_<team or matrices>_<dtype>_<dtype> -------------------------------

#define INSTANCE(name, ...) \
  template [[host_name(name)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
#define SHAPE(T, C, cache, rows, steps, form, whole)                      \
  INSTANCE("paged_attention_" #rows "_" #steps "_" form "_" #T "_" cache, \
           paged_attention<T, C, rows, steps, whole>)
#define SHAPES(T, C, cache, rows)            \
  SHAPE(T, C, cache, rows, 1, "whole", true) \
  SHAPE(T, C, cache, rows, 2, "whole", true) \
  SHAPE(T, C, cache, rows, 3, "whole", true) \
  SHAPE(T, C, cache, rows, 4, "whole", true) \
  SHAPE(T, C, cache, rows, 8, "whole", true) \
  SHAPE(T, C, cache, rows, 2, "tail", false) \
  SHAPE(T, C, cache, rows, 4, "tail", false) \
  SHAPE(T, C, cache, rows, 8, "tail", false)
#define CACHE(T, C, cache) \
  SHAPES(T, C, cache, 1)   \
  SHAPES(T, C, cache, 4)
#define TEAM(T, rows, team)                                       \
  INSTANCE("paged_attention_" #rows "_" #team "_team_" #T "_" #T, \
           paged_attention<T, Plain<T>, rows, 8, true, team>)
#define TEAMS(T) \
  TEAM(T, 1, 8)  \
  TEAM(T, 1, 16) \
  TEAM(T, 1, 32) \
  TEAM(T, 4, 8)  \
  TEAM(T, 4, 16) \
  TEAM(T, 4, 32)
#define MATRICES(T, team)                                     \
  INSTANCE("paged_attention_4_" #team "_matrices_" #T "_" #T, \
           paged_attention<T, Plain<T>, 4, 8, true, team, true>)
MATRICES(half, 8)
MATRICES(half, 16)
MATRICES(bfloat, 8)
MATRICES(bfloat, 16)
#define DTYPE(T)                    \
  TEAMS(T)                          \
  CACHE(T, Plain<T>, #T)            \
  CACHE(T, Coded<E4m3>, "fp8_e4m3") \
  CACHE(T, Coded<E5m2>, "fp8_e5m2")

DTYPE(float)
DTYPE(half)
DTYPE(bfloat)
