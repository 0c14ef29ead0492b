// What all attention kernels share: numbers, which keys a query sees, how a product of a query and
// a key becomes a score, tiles in threadgroup memory, and rows of matrices.
#pragma once
#include "shared/matrix_lanes.h"
#include "shared/types.h"

// --- numbers -------------------------------------------------------------------------------------

// Of one tensor: [samples, heads, rows, elements], elements dense.
struct Strides {
  long sample;
  long head;
  long row;
};

inline long start_of(Strides strides, long sample, long head, long row) {
  return sample * strides.sample + head * strides.head + row * strides.row;
}

// A mask is broadcast by strides of 0.
struct MaskStrides {
  long sample;
  long head;
  long query;
  long key;
};

// What the host passes. A query at position p = offset + query sees the keys from p - before to
// p + after.
struct Numbers {
  uint queries;
  uint keys;
  uint width;        // of a query and a key
  uint value_width;  // of a value and a result
  uint heads;        // of queries
  uint shared_by;    // query heads that have one head of keys and values
  uint part;         // keys of a partition
  uint parts;
  float scale;
  float softcap;
  long offset;
  long before;
  long after;
  bool has_sinks;
  Strides query, key, value, result, gradient, value_result;
  MaskStrides mask;
};

// From `first` to `end`, which is no part of it.
struct Range {
  uint first;
  uint end;
};

inline uint limited(long value, uint most) { return uint(clamp(value, 0l, long(most))); }

inline Range keys_of(uint query, constant Numbers& numbers) {
  const long position = numbers.offset + query;
  return {limited(position - numbers.before, numbers.keys),
          limited(position + numbers.after + 1, numbers.keys)};
}

inline Range queries_of(uint key, constant Numbers& numbers) {
  const long query = long(key) - numbers.offset;
  return {limited(query - numbers.after, numbers.queries),
          limited(query + numbers.before + 1, numbers.queries)};
}

inline bool holds(Range range, uint value) { return value >= range.first && value < range.end; }

// Tiles of `size` that a block of rows walks through: from `first` on, up to `whole_first` and from
// `whole_end` on a row may not see all of a tile; between them every row sees everything.
struct Walk {
  uint first;
  uint whole_first;
  uint whole_end;
  uint end;

  bool at_edge(uint tile) const { return tile < whole_first || tile >= whole_end; }
};

// Ranges never move back from one row to the next: those of a block's first and last row suffice.
inline Walk walk_of(Range of_first, Range of_last, uint size) {
  Walk walk;
  walk.first = of_first.first / size;
  walk.end = of_last.end > of_first.first ? (of_last.end + size - 1) / size : walk.first;
  walk.whole_first = clamp((of_last.first + size - 1) / size, walk.first, walk.end);
  walk.whole_end = clamp(of_first.end / size, walk.whole_first, walk.end);
  return walk;
}

// --- scores --------------------------------------------------------------------------------------

// Options that a kernel is instantiated with.
constant constexpr uint has_softcap = 1;
constant constexpr uint has_slopes = 2;
constant constexpr uint has_mask = 4;
constant constexpr uint wants_mask_gradient = 8;

// Of one head. M is the type of the mask: bool (true sees) or a float that is added.
template <typename M, uint options>
struct Scores {
  float scale;
  float cap;
  float slope;
  int offset;  // position of the first query
  device const M* mask;
  long query_stride;
  long key_stride;

  // The part that the derivative of the cap depends on.
  float capped(float product) const {
    const float score = product * scale;
    return options & has_softcap ? cap * tanh(score / cap) : score;
  }
  float derivative(float capped_score) const {
    const float part = capped_score / cap;
    return options & has_softcap ? 1.0f - part * part : 1.0f;
  }
  float distance(uint query, uint key) const { return float(abs(offset + int(query) - int(key))); }
  // What is added, or minus infinity for a key that the mask hides.
  float with_bias(float score, uint query, uint key) const {
    if constexpr ((options & has_slopes) != 0) score -= slope * distance(query, key);
    if constexpr ((options & has_mask) != 0) {
      const M value = mask[query * query_stride + key * key_stride];
      if constexpr (is_same<M, bool>::value)
        score = value ? score : -INFINITY;
      else
        score += float(value);
    }
    return score;
  }
  float operator()(float product, uint query, uint key) const {
    return with_bias(capped(product), query, key);
  }
};

// Of one head of one sample. Slopes are dense.
template <typename M, uint options>
inline Scores<M, options> scores_of(uint sample, uint head, device const M* mask,
                                    device const float* slopes, constant Numbers& numbers) {
  Scores<M, options> scores;
  scores.scale = numbers.scale;
  scores.cap = numbers.softcap;
  scores.slope = 0.0f;
  if constexpr ((options & has_slopes) != 0) scores.slope = slopes[sample * numbers.heads + head];
  scores.offset = int(numbers.offset);
  scores.mask = mask;
  if constexpr ((options & has_mask) != 0)
    scores.mask += sample * numbers.mask.sample + head * numbers.mask.head;
  scores.query_stride = numbers.mask.query;
  scores.key_stride = numbers.mask.key;
  return scores;
}

// exp(-inf - -inf) is NaN, but keys that are not seen add nothing.
inline float base_of(float largest) { return largest == -INFINITY ? 0.0f : largest; }

// --- lanes and matrices --------------------------------------------------------------------------

// Over the four lanes that hold one row. A NaN need not show: the sum of weights has it.
inline float row_max(float value) {
  value = fast::max(value, simd_shuffle_xor(value, 1));
  return fast::max(value, simd_shuffle_xor(value, 8));
}
inline float row_sum(float value) {
  value += simd_shuffle_xor(value, 1);
  return value + simd_shuffle_xor(value, 8);
}

// Eight rows of a tensor as matrices; zeros where it has no such row or column.
template <uint width, typename T>
inline void load_rows(thread simdgroup_matrix<T, 8, 8>* rows, device const T* from, bool present,
                      uint columns, Lane at) {
#pragma unroll
  for (uint i = 0; i < width / 8; ++i) {
    const uint column = i * 8 + at.column;
    rows[i].thread_elements()[0] = present && column < columns ? from[column] : T(0);
    rows[i].thread_elements()[1] = present && column + 1 < columns ? from[column + 1] : T(0);
  }
}

template <uint width, typename T>
inline void store_rows(device T* to, thread simdgroup_float8x8* rows, float factor, uint columns,
                       Lane at) {
#pragma unroll
  for (uint i = 0; i < width / 8; ++i) {
    const uint column = i * 8 + at.column;
    if (column < columns) to[column] = T(rows[i].thread_elements()[0] * factor);
    if (column + 1 < columns) to[column + 1] = T(rows[i].thread_elements()[1] * factor);
  }
}

template <uint width>
inline void clear_rows(thread simdgroup_float8x8* rows) {
#pragma unroll
  for (uint i = 0; i < width / 8; ++i) rows[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// --- tiles ---------------------------------------------------------------------------------------

// One to four neighbouring elements, or eight of 16 bits.
template <typename T, uint count>
struct Chunk {
  using type = vec<T, count>;
  static type zero() { return type(T(0)); }
};
template <typename T>
struct Chunk<T, 1> {
  using type = T;
  static T zero() { return T(0); }
};
template <typename T>
struct Chunk<T, 8> {
  using type = uint4;
  static uint4 zero() { return uint4(0); }
};

// Rows of a tile lie so far apart that columns of neighbouring rows are in different banks.
template <typename T, uint width>
constexpr uint tile_stride() {
  return width + 16 / sizeof(T);
}

// Rows of a tile, such that two tiles fit into threadgroup memory.
template <typename T, uint width>
constexpr uint tile_rows() {
  return width * sizeof(T) <= 384 ? 32 : width * sizeof(T) <= 768 ? 16 : 8;
}

struct Team {
  uint lane;
  uint simd;
  uint simds;
};

// Rows of a tensor into threadgroup memory, zeros where it has none. A simdgroup takes a row, its
// lanes neighbouring elements, or several short rows. `ragged` where a row may have fewer columns
// than the tile.
template <uint rows, uint width, bool ragged, uint count, typename T>
inline void load_tile(threadgroup T* tile, device const T* from, long stride, uint present,
                      uint columns, thread const Team& team) {
  using Elements = typename Chunk<T, count>::type;
  constexpr uint row_lanes = width / count < 32 ? width / count : 32;
  constexpr uint rows_at_once = 32 / row_lanes;
  const uint first = team.lane % row_lanes * count;
  for (uint row = team.simd * rows_at_once + team.lane / row_lanes; row < rows;
       row += team.simds * rows_at_once) {
    for (uint column = first; column < width; column += row_lanes * count) {
      Elements value = Chunk<T, count>::zero();
      if (row < present && (!ragged || column < columns))
        value = *reinterpret_cast<device const Elements*>(from + row * stride + column);
      *reinterpret_cast<threadgroup Elements*>(tile + row * tile_stride<T, width>() + column) =
          value;
    }
  }
}

// The same in two steps, for a number of simdgroups that the compiler knows: what was fetched waits
// in registers. The rows begin with `first` of `present`, which is one of them.
template <typename T, uint rows, uint width, bool ragged, uint count, uint simds>
struct HeldTile {
  using Elements = typename Chunk<T, count>::type;
  static constexpr constant uint step = simds * 32 * count;
  static constexpr constant uint steps = (rows * width + step - 1) / step;
  Elements held[steps];

  static uint place(uint i, thread const Team& team) {
    return i * step + (team.simd * 32 + team.lane) * count;
  }

  void fetch(device const T* from, uint first, uint present, long stride, uint columns,
             thread const Team& team) {
#pragma unroll
    for (uint i = 0; i < steps; ++i) {
      const uint row = first + place(i, team) / width, column = place(i, team) % width;
      const bool there = row < present && (!ragged || column < columns);
      const long at = there ? row * stride + column : first * stride;
      const Elements value = *reinterpret_cast<device const Elements*>(from + at);
      held[i] = there ? value : Chunk<T, count>::zero();
    }
  }

  void put(threadgroup T* tile, thread const Team& team) const {
#pragma unroll
    for (uint i = 0; i < steps; ++i) {
      const uint at = place(i, team);
      if (rows * width % step == 0 || at < rows * width)
        *reinterpret_cast<threadgroup Elements*>(tile + at / width * tile_stride<T, width>() +
                                                 at % width) = held[i];
    }
  }
};

// rows * transposed(tile rows): the products of blocks of eight rows with eight rows of a tile.
// Four sums side by side round less than one long one, and do not wait for each other.
template <uint width, uint blocks, typename T>
inline void products(thread simdgroup_float8x8* results,
                     thread const simdgroup_matrix<T, 8, 8> (*rows)[width / 8],
                     threadgroup const T* tile) {
  constexpr uint parts = 4;
  simdgroup_float8x8 sums[blocks][parts];
#pragma unroll
  for (uint b = 0; b < blocks; ++b) clear_rows<parts * 8>(sums[b]);
#pragma unroll
  for (uint i = 0; i < width / 8; i += parts) {
#pragma unroll
    for (uint part = 0; part < parts; ++part) {
      simdgroup_matrix<T, 8, 8> columns;
      simdgroup_load(columns, tile + (i + part) * 8, tile_stride<T, width>(), ulong2(0), true);
#pragma unroll
      for (uint b = 0; b < blocks; ++b)
        simdgroup_multiply_accumulate(sums[b][part], rows[b][i + part], columns, sums[b][part]);
    }
  }
#pragma unroll
  for (uint b = 0; b < blocks; ++b)
#pragma unroll
    for (uint e = 0; e < 2; ++e)
      results[b].thread_elements()[e] =
          (sums[b][0].thread_elements()[e] + sums[b][1].thread_elements()[e]) +
          (sums[b][2].thread_elements()[e] + sums[b][3].thread_elements()[e]);
}

// sums += weights * tile rows, for blocks of eight rows.
template <uint width, uint blocks, typename W, typename T>
inline void add_products(thread simdgroup_float8x8 (*sums)[width / 8],
                         thread const simdgroup_matrix<W, 8, 8>* weights,
                         threadgroup const T* tile) {
#pragma unroll
  for (uint i = 0; i < width / 8; ++i) {
    simdgroup_matrix<T, 8, 8> columns;
    simdgroup_load(columns, tile + i * 8, tile_stride<T, width>());
#pragma unroll
    for (uint b = 0; b < blocks; ++b)
      simdgroup_multiply_accumulate(sums[b][i], weights[b], columns, sums[b][i]);
  }
}
