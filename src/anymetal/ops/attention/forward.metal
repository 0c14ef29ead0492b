// Attention: for each query the values of all keys it sees, weighed by the softmax of their scores.
//
// tiles: a threadgroup has queries of one head, a simdgroup eight or sixteen of them. Tiles of keys
// and values go through threadgroup memory; products are made of 8x8 matrices.
//
// decode: a threadgroup has a few queries of all heads that share keys. Each simdgroup takes 32
// keys at a time, so every key and value is read once. With partitions (two_phase), several
// threadgroups share the keys, and attention_reduce combines what they leave.
//
// Template instances are made by the host: the type, the width of a head rounded up, and the
// options that are used.
#include "shared/attention.h"
#include "shared/precision.h"
#include "shared/vectors.h"

// The largest score so far, and the sum of exp(score - largest).
struct State {
  float largest;
  float sum;
};

// What a sum of values is multiplied with at the end, and the logarithm of all exponents' sum.
struct Finish {
  float share;
  float logarithm;
};

// A sink is a score that takes its share and brings no value; minus infinity is none. A query that
// sees nothing gets zeros.
inline Finish finish(State state, float sink) {
  const float largest = max(state.largest, sink);
  const float base = base_of(largest);
  const float shrink = exp(state.largest - base);
  const float sum = state.sum * shrink + exp(sink - base);
  return {sum == 0.0f ? 0.0f : shrink / sum, largest + log(sum)};
}

// --- tiles ---------------------------------------------------------------------------------------

// Of the keys of a tile.
template <typename T, uint keys, uint blocks>
struct Weights {
  simdgroup_matrix<T, 8, 8> weights[keys / 8][blocks];
};

// The queries of a simdgroup, `blocks` times eight: all blocks share what is read of a tile. A lane
// has the states of its rows; the sums are those of its own columns until the end.
template <typename T, typename M, uint width, uint options, uint blocks>
struct Queries {
  simdgroup_matrix<T, 8, 8> query[blocks][width / 8];
  simdgroup_float8x8 sum[blocks][width / 8];
  Scores<M, options> scores;
  State state[blocks];
  Range seen[blocks];
  uint row[blocks];  // of the lane, among all queries
  Lane at;

  // Where every query sees the whole tile (no edge), nothing is compared.
  template <bool edge>
  float score(uint b, float product, uint key) {
    if (edge && !holds(seen[b], key)) return -INFINITY;
    return scores(product, row[b], key);
  }

  // What the keys of a tile weigh. Products with values take weights of the values' type, which is
  // as much as a result shows of them.
  template <bool edge, uint keys>
  void weigh(thread Weights<T, keys, blocks>& found, threadgroup const T* key_tile,
             uint first_key) {
    constexpr uint stride = tile_stride<T, width>();
    simdgroup_float8x8 weights[keys / 8][blocks];
    float largest[blocks];
#pragma unroll
    for (uint b = 0; b < blocks; ++b) largest[b] = state[b].largest;
#pragma unroll
    for (uint j = 0; j < keys / 8; ++j) {
      products<width, blocks>(weights[j], query, key_tile + j * 8 * stride);
      const uint key = first_key + j * 8 + at.column;
#pragma unroll
      for (uint b = 0; b < blocks; ++b) {
        const float first = score<edge>(b, weights[j][b].thread_elements()[0], key);
        const float second = score<edge>(b, weights[j][b].thread_elements()[1], key + 1);
        weights[j][b].thread_elements()[0] = first;
        weights[j][b].thread_elements()[1] = second;
        largest[b] = fast::max(largest[b], fast::max(first, second));
      }
    }
#pragma unroll
    for (uint b = 0; b < blocks; ++b) {
      largest[b] = row_max(largest[b]);
      const float base = base_of(largest[b]);
      const float shrink = exp(state[b].largest - base);
      float sum_of_weights = state[b].sum * shrink;
#pragma unroll
      for (uint j = 0; j < keys / 8; ++j) {
        const float first = Precision<T>::exponential(weights[j][b].thread_elements()[0] - base);
        const float second = Precision<T>::exponential(weights[j][b].thread_elements()[1] - base);
        found.weights[j][b].thread_elements()[0] = T(first);
        found.weights[j][b].thread_elements()[1] = T(second);
        sum_of_weights += first + second;
      }
      state[b] = {largest[b], sum_of_weights};
#pragma unroll
      for (uint i = 0; i < width / 8; ++i) {
        sum[b][i].thread_elements()[0] *= shrink;
        sum[b][i].thread_elements()[1] *= shrink;
      }
    }
  }

  template <uint keys>
  void weigh(thread Weights<T, keys, blocks>& found, threadgroup const T* key_tile, uint first_key,
             bool edge) {
    if (edge)
      weigh<true, keys>(found, key_tile, first_key);
    else
      weigh<false, keys>(found, key_tile, first_key);
  }

  template <uint keys>
  void add(thread const Weights<T, keys, blocks>& found, threadgroup const T* value_tile) {
#pragma unroll
    for (uint j = 0; j < keys / 8; ++j)
      add_products<width, blocks>(sum, found.weights[j],
                                  value_tile + j * 8 * tile_stride<T, width>());
  }
};

// With `team_size`, which is then the number of simdgroups, tiles are on their way while the one
// before is used.
template <typename T, typename M, uint width, bool ragged, uint count, uint options, uint blocks,
          uint team_size>
[[kernel]] void attention_tiles(
    device const T* queries [[buffer(0)]], device const T* keys [[buffer(1)]],
    device const T* values [[buffer(2)]], device T* result [[buffer(3)]],
    device float* logarithms [[buffer(4)]], device const M* mask [[buffer(5)]],
    device const float* slopes [[buffer(6)]], device const float* sinks [[buffer(7)]],
    constant Numbers& numbers [[buffer(8)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]]) {
  constexpr uint rows = tile_rows<T, width>();
  constexpr uint stride = tile_stride<T, width>();
  threadgroup T key_tile[rows * stride];
  threadgroup T value_tile[rows * stride];
  const Team team = {lane, simd, simds};
  // The last queries see most keys where attention is causal: they come first.
  const uint first_query = (groups.x - 1 - group.x) * simds * 8 * blocks;
  const uint last_query = min(first_query + simds * 8 * blocks, numbers.queries) - 1;
  const uint head = group.y;
  const uint sample = group.z;
  keys += start_of(numbers.key, sample, head / numbers.shared_by, 0);
  values += start_of(numbers.value, sample, head / numbers.shared_by, 0);

  Queries<T, M, width, options, blocks> block;
  block.at = lane_of(lane);
  block.scores = scores_of<M, options>(sample, head, mask, slopes, numbers);
#pragma unroll
  for (uint b = 0; b < blocks; ++b) {
    const uint query = first_query + (simd * blocks + b) * 8 + block.at.row;
    const bool present = query < numbers.queries;
    block.row[b] = min(query, last_query);
    block.seen[b] = present ? keys_of(query, numbers) : Range{0, 0};
    block.state[b] = {-INFINITY, 0.0f};
    load_rows<width>(block.query[b], queries + start_of(numbers.query, sample, head, block.row[b]),
                     present, numbers.width, block.at);
    clear_rows<width>(block.sum[b]);
  }

  const Walk walk = walk_of(keys_of(first_query, numbers), keys_of(last_query, numbers), rows);
  Weights<T, rows, blocks> weights;
  if constexpr (team_size == 0) {
    for (uint tile = walk.first; tile < walk.end; ++tile) {
      const uint first_key = tile * rows;
      const uint here = min(rows, numbers.keys - first_key);
      threadgroup_barrier(mem_flags::mem_threadgroup);  // the tile before has been used
      load_tile<rows, width, ragged, count>(key_tile, keys + first_key * numbers.key.row,
                                            numbers.key.row, here, numbers.width, team);
      load_tile<rows, width, ragged, count>(value_tile, values + first_key * numbers.value.row,
                                            numbers.value.row, here, numbers.value_width, team);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      block.template weigh<rows>(weights, key_tile, first_key, walk.at_edge(tile));
      block.template add<rows>(weights, value_tile);
    }
  } else if (walk.first < walk.end) {
    // A key tile waits in registers while values are added, a value tile while keys are weighed.
    HeldTile<T, rows, width, ragged, count, team_size> held;
    held.fetch(keys, walk.first * rows, numbers.keys, numbers.key.row, numbers.width, team);
    held.put(key_tile, team);
    for (uint tile = walk.first; tile < walk.end; ++tile) {
      const uint first_key = tile * rows;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      held.fetch(values, first_key, numbers.keys, numbers.value.row, numbers.value_width, team);
      block.template weigh<rows>(weights, key_tile, first_key, walk.at_edge(tile));
      held.put(value_tile, team);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      held.fetch(keys, min(first_key + rows, numbers.keys - 1), numbers.keys, numbers.key.row,
                 numbers.width, team);
      block.template add<rows>(weights, value_tile);
      held.put(key_tile, team);
    }
  }

#pragma unroll
  for (uint b = 0; b < blocks; ++b) {
    const uint query = first_query + (simd * blocks + b) * 8 + block.at.row;
    const State state = {block.state[b].largest, row_sum(block.state[b].sum)};
    const Finish finished = finish(state, numbers.has_sinks ? sinks[head] : -INFINITY);
    if (query >= numbers.queries) continue;
    store_rows<width>(result + start_of(numbers.result, sample, head, query), block.sum[b],
                      finished.share, numbers.value_width, block.at);
    if (block.at.column == 0)
      logarithms[(long(sample) * numbers.heads + head) * numbers.queries + query] =
          finished.logarithm;
  }
}

// --- decode --------------------------------------------------------------------------------------

// Elements of a head that a lane has: `count` neighbours, then again 32 * count further on.
template <uint width, bool ragged, uint count, typename T>
inline void load_elements(thread float* elements, device const T* from, uint columns, uint lane) {
  using Elements = typename Chunk<T, count>::type;
#pragma unroll
  for (uint i = 0; i < width / 32 / count; ++i) {
    const uint column = (i * 32 + lane) * count;
    Elements value = Elements(T(0));
    if (!ragged || column < columns)
      value = *reinterpret_cast<device const Elements*>(from + column);
#pragma unroll
    for (uint c = 0; c < count; ++c)
      elements[i * count + c] = float(reinterpret_cast<thread const T*>(&value)[c]);
  }
}

// Row r of a head of keys is query r / shared_by of its head r % shared_by.
struct Row {
  uint query;
  uint head;
};

inline Row row_of(uint row, uint key_head, constant Numbers& numbers) {
  return {row / numbers.shared_by, key_head * numbers.shared_by + row % numbers.shared_by};
}

// What a simdgroup knows of `rows` queries after some keys. With a `team` of lanes that share a key
// a simdgroup reads several at once: a lane has eight neighbouring elements, 16 bytes an access,
// and the sums are those of its team's keys. Without (0), all lanes share a key.
template <typename M, uint width, uint rows, uint options, uint team>
struct Decoding {
  static constexpr constant uint elements = team ? 8 : width / 32;
  float query[rows][elements];
  float sum[rows][elements];
  State state[rows];
  Range seen[rows];
  uint index[rows];  // of the query
  Scores<M, options> scores[rows];

  // Keys or values that are on their way at the same time.
  static constexpr constant uint at_once = 4;

  // The 32 keys from `first` on, of which there are `present`: lane i ends with key i's weight.
  template <bool ragged, uint count, typename T>
  void attend(device const T* keys, long key_stride, device const T* values, long value_stride,
              uint first, uint present, constant Numbers& numbers, uint lane) {
    float weight[rows];
#pragma unroll
    for (uint r = 0; r < rows; ++r) weight[r] = 0.0f;
    uint j = 0;
    for (; j + at_once <= present; j += at_once)
      score<ragged, at_once, count>(weight, keys + (first + j) * key_stride, key_stride, j,
                                    numbers.width, lane);
    for (; j < present; ++j)
      score<ragged, 1, count>(weight, keys + (first + j) * key_stride, key_stride, j, numbers.width,
                              lane);
#pragma unroll
    for (uint r = 0; r < rows; ++r) weight[r] = weigh(r, weight[r], first + lane);
    for (j = 0; j + at_once <= present; j += at_once)
      add<ragged, at_once, count>(weight, values + (first + j) * value_stride, value_stride, j,
                                  numbers.value_width, lane);
    for (; j < present; ++j)
      add<ragged, 1, count>(weight, values + (first + j) * value_stride, value_stride, j,
                            numbers.value_width, lane);
  }

  // Lane j + i gets the product of the i-th of some keys that are read at once.
  template <bool ragged, uint some, uint count, typename T>
  void score(thread float* weight, device const T* keys, long stride, uint j, uint columns,
             uint lane) {
    float key[some][width / 32];
#pragma unroll
    for (uint i = 0; i < some; ++i)
      load_elements<width, ragged, count>(key[i], keys + i * stride, columns, lane);
#pragma unroll
    for (uint i = 0; i < some; ++i)
#pragma unroll
      for (uint r = 0; r < rows; ++r) {
        float product = 0.0f;
#pragma unroll
        for (uint e = 0; e < width / 32; ++e) product = fma(query[r][e], key[i][e], product);
        product = simd_sum(product);
        weight[r] = select(weight[r], product, lane == j + i);
      }
  }

  // Adds the values of the keys that lanes j, j + 1, ... have the weights of.
  template <bool ragged, uint some, uint count, typename T>
  void add(thread const float* weight, device const T* values, long stride, uint j, uint columns,
           uint lane) {
    float value[some][width / 32];
#pragma unroll
    for (uint i = 0; i < some; ++i)
      load_elements<width, ragged, count>(value[i], values + i * stride, columns, lane);
#pragma unroll
    for (uint i = 0; i < some; ++i)
#pragma unroll
      for (uint r = 0; r < rows; ++r) {
        const float share = simd_shuffle(weight[r], ushort(j + i));
#pragma unroll
        for (uint e = 0; e < width / 32; ++e) sum[r][e] = fma(share, value[i][e], sum[r][e]);
      }
  }

  static constexpr constant uint team_at_once = 8;

  // The same for a team, whose keys are as many as its lanes. Past the last key it is read again,
  // and weighs nothing.
  template <typename T>
  void attend_in_teams(device const T* keys, long key_stride, device const T* values,
                       long value_stride, uint first, uint present, uint lane) {
    using Raw = Lying<T, 8>;
    constexpr uint lanes = team ? team : 1;
    const uint begin = lane / lanes * lanes, inside = lane % lanes;
    float weight[rows];
#pragma unroll
    for (uint start = 0; start < team; start += team_at_once) {
      typename Raw::type key[team_at_once];
#pragma unroll
      for (uint k = 0; k < team_at_once; ++k) {
        const uint row = first + min(begin + start + k, present - 1);
        key[k] = Raw::load(keys + row * key_stride + inside * 8);
      }
#pragma unroll
      for (uint r = 0; r < rows; ++r) {
        float products[team_at_once];
#pragma unroll
        for (uint k = 0; k < team_at_once; ++k) {
          float4 part[2];
          Raw::read(part, key[k]);
          products[k] = query[r][0] * part[0][0];
#pragma unroll
          for (uint e = 1; e < 8; ++e)
            products[k] = fma(query[r][e], part[e / 4][e % 4], products[k]);
        }
        const float own = own_sum<team_at_once, team>(products, inside);
        if (start == 0 || inside / team_at_once * team_at_once == start) weight[r] = own;
      }
    }
#pragma unroll
    for (uint r = 0; r < rows; ++r) weight[r] = weigh(r, weight[r], first + lane);
#pragma unroll
    for (uint start = 0; start < team; start += team_at_once) {
      typename Raw::type value[team_at_once];
#pragma unroll
      for (uint k = 0; k < team_at_once; ++k) {
        const uint row = first + min(begin + start + k, present - 1);
        value[k] = Raw::load(values + row * value_stride + inside * 8);
      }
#pragma unroll
      for (uint k = 0; k < team_at_once; ++k) {
        float4 part[2];
        Raw::read(part, value[k]);
#pragma unroll
        for (uint r = 0; r < rows; ++r) {
          const float share = simd_shuffle(weight[r], ushort(begin + start + k));
#pragma unroll
          for (uint e = 0; e < 8; ++e) sum[r][e] = fma(share, part[e / 4][e % 4], sum[r][e]);
        }
      }
    }
  }

  // The sums of all teams, in each of them.
  void join_teams() {
#pragma unroll
    for (uint mask = team; mask < 32; mask *= 2)
#pragma unroll
      for (uint r = 0; r < rows; ++r)
#pragma unroll
        for (uint e = 0; e < 8; ++e) sum[r][e] += simd_shuffle_xor(sum[r][e], mask);
  }

  // The weight of this lane's key; what was added before is scaled to it.
  float weigh(uint r, float product, uint key) {
    float score = -INFINITY;
    if (holds(seen[r], key)) score = scores[r](product, index[r], key);
    const float largest = max(state[r].largest, largest_of_simdgroup(score));
    const float base = base_of(largest);
    const float shrink = exp(state[r].largest - base);
    const float weight = exp(score - base);
    state[r] = {largest, state[r].sum * shrink + simd_sum(weight)};
#pragma unroll
    for (uint i = 0; i < elements; ++i) sum[r][i] *= shrink;
    return weight;
  }
};

// The states of all simdgroups of a threadgroup as one.
inline State merged(threadgroup const State* states, uint count) {
  float largest = -INFINITY;
  for (uint i = 0; i < count; ++i) largest = max(largest, states[i].largest);
  const float base = base_of(largest);
  float sum = 0.0f;
  for (uint i = 0; i < count; ++i) sum += states[i].sum * exp(states[i].largest - base);
  return {largest, sum};
}

// Threadgroups: partitions of the keys, then rows and heads of keys, then samples. Without
// partitions `sums` and `states` are not used; with them `result` and `logarithms` are not.
template <typename T, typename M, uint width, bool ragged, uint count, uint options, uint rows,
          bool partitioned, uint most_simds>
[[kernel]] void attention_decode(
    device const T* queries [[buffer(0)]], device const T* keys [[buffer(1)]],
    device const T* values [[buffer(2)]], device T* result [[buffer(3)]],
    device float* logarithms [[buffer(4)]], device const M* mask [[buffer(5)]],
    device const float* slopes [[buffer(6)]], device const float* sinks [[buffer(7)]],
    constant Numbers& numbers [[buffer(8)]], device float* sums [[buffer(9)]],
    device float2* states [[buffer(10)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]], uint in_group [[thread_index_in_threadgroup]],
    uint3 threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup State group_states[rows][most_simds];
  threadgroup float group_sums[most_simds * width];
  const uint all_rows = numbers.queries * numbers.shared_by;
  const uint chunks = (all_rows + rows - 1) / rows;
  const uint key_head = group.y / chunks;
  const uint first_row = group.y % chunks * rows;
  const uint last_row = min(first_row + rows, all_rows) - 1;
  const uint sample = group.z;
  keys += start_of(numbers.key, sample, key_head, 0);
  values += start_of(numbers.value, sample, key_head, 0);

  constexpr uint team = count == 8 && width < 256 ? width / 8 : 0;
  constexpr uint elements = Decoding<M, width, rows, options, team>::elements;
  Decoding<M, width, rows, options, team> block;
#pragma unroll
  for (uint r = 0; r < rows; ++r) {
    const Row row = row_of(min(first_row + r, last_row), key_head, numbers);
    device const T* query = queries + start_of(numbers.query, sample, row.head, row.query);
    if constexpr (team > 0) {
#pragma unroll
      for (uint i = 0; i < elements; ++i) block.query[r][i] = float(query[lane % team * 8 + i]);
    } else {
      load_elements<width, ragged, count>(block.query[r], query, numbers.width, lane);
    }
#pragma unroll
    for (uint i = 0; i < elements; ++i) block.sum[r][i] = 0.0f;
    block.state[r] = {-INFINITY, 0.0f};
    block.seen[r] = keys_of(row.query, numbers);
    block.index[r] = row.query;
    block.scores[r] = scores_of<M, options>(sample, row.head, mask, slopes, numbers);
  }

  uint first = block.seen[0].first / 32 * 32;
  uint end = block.seen[rows - 1].end;
  if (partitioned) {
    first = max(first, group.x * numbers.part);
    end = min(end, group.x * numbers.part + numbers.part);
  }
  for (uint key = first + simd * 32; key < end; key += simds * 32) {
    const uint present = min(32u, end - key);
    if constexpr (team > 0) {
      block.attend_in_teams(keys, numbers.key.row, values, numbers.value.row, key, present, lane);
    } else {
      block.template attend<ragged, count>(keys, numbers.key.row, values, numbers.value.row, key,
                                           present, numbers, lane);
    }
  }
  if constexpr (team > 0) block.join_teams();

  if (lane == 0)
#pragma unroll
    for (uint r = 0; r < rows; ++r) group_states[r][simd] = block.state[r];
  threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
  for (uint r = 0; r < rows; ++r) {
    if (first_row + r > last_row) break;
    const Row row = row_of(first_row + r, key_head, numbers);
    const long place = (long(sample) * numbers.heads + row.head) * numbers.queries + row.query;
    const State state = merged(group_states[r], simds);
    const float shrink = exp(block.state[r].largest - base_of(state.largest));
#pragma unroll
    for (uint i = 0; i < elements; ++i) {
      const uint column = team ? lane * 8 + i : (i / count * 32 + lane) * count + i % count;
      if (column < width) group_sums[simd * width + column] = block.sum[r][i] * shrink;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const Finish finished = finish(state, numbers.has_sinks ? sinks[row.head] : -INFINITY);
    for (uint column = in_group; column < numbers.value_width; column += threads.x) {
      float total = 0.0f;
      for (uint i = 0; i < simds; ++i) total += group_sums[i * width + column];
      if (partitioned)
        sums[(place * groups.x + group.x) * numbers.value_width + column] = total;
      else
        result[start_of(numbers.result, sample, row.head, row.query) + column] =
            T(total * finished.share);
    }
    if (in_group == 0) {
      if (partitioned)
        states[place * groups.x + group.x] = float2(state.largest, state.sum);
      else
        logarithms[place] = finished.logarithm;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// What the partitions of a row left: a threadgroup a row.
template <typename T>
[[kernel]] void attention_reduce(
    device const float* sums [[buffer(0)]], device const float2* states [[buffer(1)]],
    device T* result [[buffer(2)]], device float* logarithms [[buffer(3)]],
    device const float* sinks [[buffer(4)]], constant Numbers& numbers [[buffer(5)]],
    uint row [[threadgroup_position_in_grid]], uint in_group [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
  const uint query = row % numbers.queries;
  const uint head = row / numbers.queries % numbers.heads;
  const uint sample = row / numbers.queries / numbers.heads;
  states += long(row) * numbers.parts;
  sums += long(row) * numbers.parts * numbers.value_width;
  State state = {-INFINITY, 0.0f};
  for (uint i = 0; i < numbers.parts; ++i) state.largest = max(state.largest, states[i].x);
  const float base = base_of(state.largest);
  for (uint i = 0; i < numbers.parts; ++i) state.sum += states[i].y * exp(states[i].x - base);
  const Finish finished = finish(state, numbers.has_sinks ? sinks[head] : -INFINITY);
  result += start_of(numbers.result, sample, head, query);
  for (uint column = in_group; column < numbers.value_width; column += threads) {
    float total = 0.0f;
    for (uint i = 0; i < numbers.parts; ++i)
      total += sums[i * numbers.value_width + column] * exp(states[i].x - base);
    result[column] = T(total * finished.share);
  }
  if (in_group == 0) logarithms[row] = finished.logarithm;
}
