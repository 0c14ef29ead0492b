// What the kernels of paged attention share: numbers, which rows a threadgroup has and which keys
// they see, and the softmax.
#pragma once
#include "shared/types.h"

// --- what the host passes ------------------------------------------------------------------------

struct Strides {
  uint query_token, query_head;
  uint key_block, key_slot, key_head;
  uint value_block, value_slot, value_head;
};

struct Numbers {
  uint tokens;       // rows of the query tensor
  uint batch;        // sequences
  uint queries;      // of each sequence; 0: `starts` has the first token of each
  uint kv_heads;     // heads of keys and values
  uint group;        // query heads that share one of them
  uint size;         // elements of a head
  uint blocks;       // of the caches
  uint block_size;   // keys of a block
  uint table_width;  // blocks of a table
  uint window;       // keys that a query sees up to its own, and from it on; 0: all
  uint part;         // keys of a part
  uint parts;        // parts of a sequence
  float scale;
  float softcap;  // 0: none
  bool is_causal;
  bool has_slopes;
  bool has_sinks;
  bool has_key_scales;
  bool has_value_scales;
  Strides strides;
};

inline float scale_at(device const float* scales, bool has_scales, uint kv_head) {
  return has_scales ? scales[kv_head] : 1.0f;
}

// --- which rows, and which keys they see ---------------------------------------------------------

// The rows of one threadgroup: query heads of a sequence, all heads of a query side by side.
struct Tile {
  uint sequence;
  uint first_row;
  uint first_token;
  uint queries;
};

inline uint first_tile(device const int* starts, uint sequence, uint group, uint rows) {
  return uint(starts[sequence]) * group / rows + sequence;
}

// Tiles of a ragged batch are counted so that each sequence begins with a whole one: some are
// empty.
inline Tile tile_of(uint index, uint rows, device const int* starts, constant Numbers& numbers) {
  if (numbers.queries) {
    const uint each = (numbers.queries * numbers.group + rows - 1) / rows;
    const uint sequence = index / each;
    return {sequence, index % each * rows, sequence * numbers.queries, numbers.queries};
  }
  uint sequence = 0, end = numbers.batch;
  while (end - sequence > 1) {
    const uint middle = (sequence + end) / 2;
    if (first_tile(starts, middle, numbers.group, rows) <= index) {
      sequence = middle;
    } else {
      end = middle;
    }
  }
  const uint first = first_tile(starts, sequence, numbers.group, rows);
  const int start = starts[sequence];
  const int queries = starts[sequence + 1] - start;
  return {sequence, (index - first) * rows, uint(start), uint(max(queries, 0))};
}

struct Row {
  uint token;  // numbers.tokens: there is no such row
  uint head;
  int position;  // of the query among the keys
  uint begin;    // of the keys it sees
  uint end;
};

inline Row row_of(uint index, uint kv_head, uint length, thread const Tile& tile,
                  constant Numbers& numbers) {
  const uint query = index / numbers.group;
  const uint token = tile.first_token + query;
  const uint head = kv_head * numbers.group + index % numbers.group;
  if (query >= tile.queries || token >= numbers.tokens) return {numbers.tokens, head, 0, 0, 0};
  const int position = int(length) - int(tile.queries) + int(query);
  const int window = int(numbers.window ? numbers.window : length + tile.queries);
  const int end = numbers.is_causal ? position + 1 : position + window;
  const int begin = position + 1 - window;
  const uint last = uint(clamp(end, 0, int(length)));
  return {token, head, position, min(uint(max(begin, 0)), last), last};
}

// --- one number a row ----------------------------------------------------------------------------

template <uint rows>
struct Each;
template <>
struct Each<1> {
  using Floats = float;
  using Ints = int;
  using Uints = uint;
};
template <>
struct Each<4> {
  using Floats = float4;
  using Ints = int4;
  using Uints = uint4;
};

template <typename T>
inline T of_row(T all, uint) {
  return all;
}
template <typename T>
inline T of_row(vec<T, 4> all, uint r) {
  return all[r];
}
template <typename T>
inline void set_row(thread T& all, uint, T value) {
  all = value;
}
template <typename T>
inline void set_row(thread vec<T, 4>& all, uint r, T value) {
  all[r] = value;
}

// --- softmax -------------------------------------------------------------------------------------

// exp(-inf - -inf) is NaN, but a row that has seen no key yet counts nothing.
template <typename V>
inline V base_of(V largest) {
  return select(largest, V(0.0f), largest == V(-INFINITY));
}

// The largest score, and the sum of exp(score - largest).
template <typename V>
struct State {
  V largest;
  V total;
};

inline State<float> merge(State<float> a, State<float> b) {
  const float largest = max(a.largest, b.largest);
  const float base = base_of(largest);
  return {largest, a.total * exp(a.largest - base) + b.total * exp(b.largest - base)};
}

// What the sum of weighted values is multiplied with: rows without keys are zero. A sink is a score
// that has no value.
inline float weight_of(State<float> state, float value_scale, uint head, device const float* sinks,
                       bool has_sinks) {
  float factor = value_scale;
  if (has_sinks) {
    const State<float> whole = merge(state, {sinks[head], 1.0f});
    factor *= exp(state.largest - base_of(whole.largest));
    state = whole;
  }
  return state.total == 0.0f ? 0.0f : factor / state.total;
}
