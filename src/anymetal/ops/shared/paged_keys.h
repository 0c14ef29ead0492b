// Keys of paged attention: how the lanes of a simdgroup find 32 of them, score them for the rows of
// a threadgroup, and add up their values. Elements of a head are spread over the lanes, or eight
// neighbours are one lane's, or scores are products of matrices.
#pragma once
#include <metal_simdgroup_matrix>

#include "shared/fp8.h"
#include "shared/matrix_lanes.h"
#include "shared/paged.h"
#include "shared/vectors.h"

constant constexpr uint lanes = 32;
constant constexpr uint no_key = 0xffffffff;

// How an element of a cache becomes a float.
template <typename T>
struct Plain {
  using storage = T;
  static float decode(T value) { return float(value); }
};
template <typename F>
struct Coded {
  using storage = uchar;
  static float decode(uchar value) { return fp8_to_float<F>(value); }
};

// --- elements of a head, spread over the lanes ---------------------------------------------------

// Lane `lane` has the elements lane, lane + 32, ...: `steps` of them. Without `whole` the last ones
// may be missing.
template <typename C, uint steps, bool whole>
inline void load_head(device const typename C::storage* head, uint size, uint lane,
                      thread float* values) {
  for (uint i = 0; i < steps; ++i) {
    const uint at = lane + lanes * i;
    values[i] = 0.0f;
    if (whole || at < size) values[i] = C::decode(head[at]);
  }
}

// A lane's share of the rows: queries and what is known of their results.
template <uint rows, uint steps>
struct Rows {
  using Floats = typename Each<rows>::Floats;
  Floats query[steps];
  Floats sums[steps];   // of values times exp(score - largest)
  State<Floats> state;  // the total is that of this lane's keys
};

// What the score of a key depends on besides the product, a number a row.
template <uint rows>
struct Limits {
  typename Each<rows>::Floats slope;
  typename Each<rows>::Ints position;
  typename Each<rows>::Uints begin;  // of the keys that the row sees
  typename Each<rows>::Uints end;
};

// 32 keys of a simdgroup: where they are, and how much each counts, for all lanes to read.
template <uint rows>
struct Keys {
  uint key;  // of this lane, or no_key: no row sees that
  uint count;
  bool exists;
  threadgroup uint2* offsets;  // of key and value in the caches
  threadgroup typename Each<rows>::Floats* weights;
};

// The block of this lane's key, of those from `start` on.
inline uint block_of(uint start, uint end, uint lane, device const int* table,
                     constant Numbers& numbers) {
  return uint(table[min(start + lane, end - 1) / numbers.block_size]);
}

template <uint rows>
inline void place_keys(thread Keys<rows>& keys, uint block, uint start, uint end, uint lane,
                       constant Numbers& numbers) {
  const uint key = min(start + lane, end - 1);
  const uint slot = key % numbers.block_size;
  keys.key = start + lane < end ? key : no_key;
  keys.count = min(lanes, end - start);
  keys.exists = block < numbers.blocks;
  const uint known = keys.exists ? block : 0;
  keys.offsets[lane] =
      uint2(known * numbers.strides.key_block + slot * numbers.strides.key_slot,
            known * numbers.strides.value_block + slot * numbers.strides.value_slot);
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Keys or values that are on their way at the same time.
constant constexpr uint at_once = 4;

// Adds the scores of `some` keys from j on to those of the lanes that keep them.
template <typename C, uint some, uint rows, uint steps, bool whole>
inline void add_scores(thread typename Each<rows>::Floats& scores, uint j,
                       thread const Rows<rows, steps>& all, thread const Keys<rows>& keys,
                       device const typename C::storage* cache, uint size, uint lane) {
  using Floats = typename Each<rows>::Floats;
  float key[some][steps];
#pragma unroll
  for (uint k = 0; k < some; ++k)
    load_head<C, steps, whole>(cache + keys.offsets[j + k].x, size, lane, key[k]);
#pragma unroll
  for (uint k = 0; k < some; ++k) {
    Floats product = Floats(0.0f);
    for (uint i = 0; i < steps; ++i) product = fma(all.query[i], Floats(key[k][i]), product);
    const Floats score = simd_sum(product);
    if (lane == j + k) scores = score;
  }
}

// The scores of this lane's key.
template <typename C, uint rows, uint steps, bool whole>
inline typename Each<rows>::Floats scores_of(thread const Rows<rows, steps>& all,
                                             thread const Keys<rows>& keys,
                                             device const typename C::storage* cache, uint size,
                                             uint lane) {
  using Floats = typename Each<rows>::Floats;
  Floats scores = Floats(0.0f);
  uint j = 0;
  for (; j + at_once <= keys.count; j += at_once)
    add_scores<C, at_once, rows, steps, whole>(scores, j, all, keys, cache, size, lane);
  for (; j < keys.count; ++j)
    add_scores<C, 1, rows, steps, whole>(scores, j, all, keys, cache, size, lane);
  return scores;
}

// Scores become weights, and what was summed before is scaled to them.
template <uint rows, uint steps>
inline void weigh_keys(thread Rows<rows, steps>& all, Limits<rows> limits,
                       thread const Keys<rows>& keys, typename Each<rows>::Floats score,
                       float softcap, uint lane) {
  using Floats = typename Each<rows>::Floats;
  using Ints = typename Each<rows>::Ints;
  if (softcap != 0.0f) score = softcap * tanh(score / softcap);
  score -= limits.slope * Floats(abs(Ints(int(keys.key)) - limits.position));
  if (!keys.exists) score = Floats(NAN);
  score = select(Floats(-INFINITY), score, limits.begin <= keys.key && limits.end > keys.key);
  const Floats largest = max(all.state.largest, simd_max(score));
  const Floats base = base_of(largest);
  const Floats factor = exp(all.state.largest - base);
  const Floats weight = exp(score - base);
  all.state = {largest, all.state.total * factor + weight};
  for (uint i = 0; i < steps; ++i) all.sums[i] *= factor;
  keys.weights[lane] = weight;
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

template <typename C, uint some, uint rows, uint steps, bool whole>
inline void add_some_values(uint j, thread Rows<rows, steps>& all, thread const Keys<rows>& keys,
                            device const typename C::storage* cache, uint size, uint lane) {
  using Floats = typename Each<rows>::Floats;
  float value[some][steps];
#pragma unroll
  for (uint k = 0; k < some; ++k)
    load_head<C, steps, whole>(cache + keys.offsets[j + k].y, size, lane, value[k]);
#pragma unroll
  for (uint k = 0; k < some; ++k) {
    const Floats weight = keys.weights[j + k];
    for (uint i = 0; i < steps; ++i) all.sums[i] = fma(weight, Floats(value[k][i]), all.sums[i]);
  }
}

template <typename C, uint rows, uint steps, bool whole>
inline void add_values(thread Rows<rows, steps>& all, thread const Keys<rows>& keys,
                       device const typename C::storage* cache, uint size, uint lane) {
  uint j = 0;
  for (; j + at_once <= keys.count; j += at_once)
    add_some_values<C, at_once, rows, steps, whole>(j, all, keys, cache, size, lane);
  for (; j < keys.count; ++j)
    add_some_values<C, 1, rows, steps, whole>(j, all, keys, cache, size, lane);
  simdgroup_barrier(mem_flags::mem_threadgroup);  // before the next keys take the place of these
}

// --- eight neighbouring elements a lane ----------------------------------------------------------

// `team` lanes share a key, so that a simdgroup has several at once: a lane has eight neighbouring
// elements of each key that is its team's, and 16 bytes are an access. Heads are 8 * team elements.
constant constexpr uint wide_steps = 8;
constant constexpr uint wide_at_once = 8;

template <typename T, uint rows, uint team>
inline typename Each<rows>::Floats wide_scores(thread const Rows<rows, wide_steps>& all,
                                               thread const Keys<rows>& keys, device const T* cache,
                                               uint lane) {
  using Floats = typename Each<rows>::Floats;
  const uint first = lane / team * team, inside = lane % team;
  Floats scores = Floats(0.0f);
  for (uint start = 0; start < team; start += wide_at_once) {
    float4 key[wide_at_once][2];
#pragma unroll
    for (uint k = 0; k < wide_at_once; ++k)
      Access<8>::load(key[k], cache + keys.offsets[first + start + k].x + inside * 8);
    Floats products[wide_at_once];
#pragma unroll
    for (uint k = 0; k < wide_at_once; ++k) {
      products[k] = all.query[0] * key[k][0][0];
#pragma unroll
      for (uint i = 1; i < wide_steps; ++i)
        products[k] = fma(all.query[i], Floats(key[k][i / 4][i % 4]), products[k]);
    }
    const Floats score = own_sum<wide_at_once, team>(products, inside);
    if (inside / wide_at_once * wide_at_once == start) scores = score;
  }
  return scores;
}

template <typename T, uint rows, uint team>
inline void add_wide_values(thread Rows<rows, wide_steps>& all, thread const Keys<rows>& keys,
                            device const T* cache, uint lane) {
  using Floats = typename Each<rows>::Floats;
  const uint first = lane / team * team, inside = lane % team;
  for (uint start = 0; start < team; start += wide_at_once) {
    float4 value[wide_at_once][2];
#pragma unroll
    for (uint k = 0; k < wide_at_once; ++k)
      Access<8>::load(value[k], cache + keys.offsets[first + start + k].y + inside * 8);
#pragma unroll
    for (uint k = 0; k < wide_at_once; ++k) {
      const Floats weight = keys.weights[first + start + k];
#pragma unroll
      for (uint i = 0; i < wide_steps; ++i)
        all.sums[i] = fma(weight, Floats(value[k][i / 4][i % 4]), all.sums[i]);
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);  // before the next keys take the place of these
}

// --- scores as products of matrices --------------------------------------------------------------

// A row of a left matrix is a key, a column of a right one a row of queries. The four lanes of a
// row read 16 bytes of a key each: their elements are columns of four matrices, and queries are put
// into the same order. Keys, or values, that are on their way are eight accesses a lane; of heads
// of 128 elements those are half of a simdgroup's 32.
constant constexpr uint accesses = 8;

template <typename T, uint team>
struct Matrices {
  static constexpr constant uint batches = team / accesses;
  static constexpr constant uint octets = 4 / batches;  // of keys in a batch
  static constexpr constant uint pieces = team / 4;     // accesses of a lane to a key
  simdgroup_matrix<T, 8, 8> queries[team];

  // The element of a head that a row of right matrix `m` has.
  static uint element(uint m, uint row) { return m / 4 * 32 + row / 2 * 8 + m % 4 * 2 + row % 2; }

  template <uint rows>
  void load_queries(device const T* query, uint kv_head, uint length, thread const Tile& tile,
                    constant Numbers& numbers, Lane at) thread {
    vec<T, 2> pairs[team];
#pragma unroll
    for (uint i = 0; i < 2; ++i) {
      const uint index = min(at.column + i, rows - 1);
      const Row row = row_of(tile.first_row + index, kv_head, length, tile, numbers);
      const uint token = min(row.token, numbers.tokens - 1);
      device const T* head =
          query + token * numbers.strides.query_token + row.head * numbers.strides.query_head;
#pragma unroll
      for (uint m = 0; m < team; ++m)
        pairs[m][i] = at.column + i < rows ? head[element(m, at.row)] : T(0.0f);
    }
#pragma unroll
    for (uint m = 0; m < team; ++m) queries[m].thread_elements() = pairs[m];
  }

  static void load_keys(thread uint4* keys, threadgroup const uint2* offsets, device const T* cache,
                        uint batch, Lane at) {
#pragma unroll
    for (uint o = 0; o < octets; ++o) {
      device const T* key = cache + offsets[(batch * octets + o) * 8 + at.row].x + at.column * 4;
#pragma unroll
      for (uint j = 0; j < pieces; ++j)
        keys[o * pieces + j] = *reinterpret_cast<device const uint4*>(key + j * 32);
    }
  }

  static void load_values(thread uint4* values, threadgroup const uint2* offsets,
                          device const T* cache, uint batch, uint lane) {
    const uint first = lane / team * team + batch * accesses;
#pragma unroll
    for (uint k = 0; k < accesses; ++k)
      values[k] =
          *reinterpret_cast<device const uint4*>(cache + offsets[first + k].y + lane % team * 8);
  }

  // A batch's scores, each at the place of its key.
  template <typename Floats>
  void put_scores(thread const uint4* keys, threadgroup Floats* scores, uint batch,
                  Lane at) const thread {
    simdgroup_float8x8 sums[octets];
#pragma unroll
    for (uint o = 0; o < octets; ++o) sums[o] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
#pragma unroll
    for (uint m = 0; m < team; ++m) {
#pragma unroll
      for (uint o = 0; o < octets; ++o) {
        simdgroup_matrix<T, 8, 8> left;
        left.thread_elements() = as_type<vec<T, 2>>(keys[o * pieces + m / 4][m % 4]);
        simdgroup_multiply_accumulate(sums[o], left, queries[m], sums[o]);
      }
    }
    constexpr uint rows = sizeof(Floats) / sizeof(float);
#pragma unroll
    for (uint o = 0; o < octets; ++o) {
      threadgroup Floats* place = scores + (batch * octets + o) * 8 + at.row;
      if (at.column < rows)
        *reinterpret_cast<threadgroup float2*>(reinterpret_cast<threadgroup float*>(place) +
                                               at.column) = sums[o].thread_elements();
    }
  }

  template <uint rows>
  static void add_values(thread Rows<rows, wide_steps>& all, thread const uint4* values,
                         threadgroup const typename Each<rows>::Floats* weights, uint batch,
                         uint lane) {
    using Floats = typename Each<rows>::Floats;
    const uint first = lane / team * team + batch * accesses;
#pragma unroll
    for (uint k = 0; k < accesses; ++k) {
      const Floats weight = weights[first + k];
      float4 value[2];
      Lying<T, 8>::read(value, values[k]);
#pragma unroll
      for (uint i = 0; i < wide_steps; ++i)
        all.sums[i] = fma(weight, Floats(value[i / 4][i % 4]), all.sums[i]);
    }
  }
};

// A simdgroup's way along its keys. While a batch of keys or values is used, others are on their
// way.
template <typename T, uint rows, uint team>
struct Walk {
  using M = Matrices<T, team>;
  threadgroup const Limits<rows>* limits;
  device const int* table;
  device const T* key_cache;
  device const T* value_cache;
  float scale;
  uint end;
  uint lane;
  M matrices;
  uint4 held[M::batches][accesses];

  uint block(uint start, constant Numbers& numbers) const thread {
    return block_of(start, end, lane, table, numbers);
  }

  void begin(thread Keys<rows>& keys, uint start, constant Numbers& numbers) thread {
    place_keys(keys, block(start, numbers), start, end, lane, numbers);
#pragma unroll
    for (uint b = 0; b < M::batches; ++b)
      M::load_keys(held[b], keys.offsets, key_cache, b, lane_of(lane));
  }

  // Uses the keys that are held, and reads those from `next` on unless these are the last.
  template <bool last>
  void step(thread Rows<rows, wide_steps>& all, thread Keys<rows>& keys, uint next,
            constant Numbers& numbers) thread {
    const Lane at = lane_of(lane);
    const uint block_of_next = last ? 0 : block(next, numbers);
#pragma unroll
    for (uint b = 0; b < M::batches; ++b) {
      matrices.put_scores(held[b], keys.weights, b, at);
      M::load_values(held[b], keys.offsets, value_cache, b, lane);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    weigh_keys(all, limits[0], keys, keys.weights[lane] * scale, numbers.softcap, lane);
    if (!last) place_keys(keys, block_of_next, next, end, lane, numbers);
#pragma unroll
    for (uint b = 0; b < M::batches; ++b) {
      M::add_values(all, held[b], keys.weights, b, lane);
      if (last) continue;
      simdgroup_barrier(mem_flags::mem_threadgroup);  // before scores take the place of weights
      M::load_keys(held[b], keys.offsets, key_cache, b, at);
    }
  }
};
