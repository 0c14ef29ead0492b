// Rotary position embedding: pairs of elements of q and k are turned by an angle of their position.
//
// A pair is (i, i + half) of a head (split) or (2 i, 2 i + 1) (interleaved); elements after the
// rotary ones are copied. A thread has the same pair, or four neighbouring ones, in several heads,
// so that angles are read or computed once. q and k go in one launch: k's heads follow q's.
#include "shared/vectors.h"

// How a token finds its position.
enum class Positions : uint {
  in_sequence,  // offset + place in the sequence
  shared_ids,   // one list of positions for all of the batch
  own_ids,      // a position a token
  own_row,      // a row of the tables a token
};

struct Strides {
  long sample;
  long token;
  long head;
};

// What the host passes.
struct Numbers {
  uint sequence;
  uint q_heads;
  uint k_heads;
  uint dim;
  uint half_dim;
  uint heads;  // that a thread turns
  Positions positions;
  float direction;  // 1, or -1 to turn back
  long offset;      // of the first token
  long rows;        // of the tables
  Strides q, k, turned_q, turned_k;
};

inline long position_of(uint token, device const long* ids, constant Numbers& numbers) {
  if (numbers.positions == Positions::own_row) return token;
  if (numbers.positions == Positions::own_ids) return ids[token];
  const uint place = token % numbers.sequence;
  return numbers.positions == Positions::shared_ids ? ids[place] : numbers.offset + place;
}

inline long start_of(Strides strides, long sample, long token, long head) {
  return sample * strides.sample + token * strides.token + head * strides.head;
}

// --- the two numbers of an angle -----------------------------------------------------------------

template <typename V>
struct Turn {
  V cosine;
  V sine;
};

// From tables; a position they do not have gives NaN rather than someone else's memory.
template <uint width, typename A>
inline Turn<typename Width<width>::type> from_tables(device const A* cosines, device const A* sines,
                                                     long position, uint pair,
                                                     constant Numbers& numbers) {
  using V = typename Width<width>::type;
  if (position < 0 || position >= numbers.rows) return {V(NAN), V(NAN)};
  const long at = position * numbers.half_dim + pair;
  return {Width<width>::load(cosines + at), Width<width>::load(sines + at)};
}

// From frequencies in turns a position, as the sum of two floats: only the fraction of a turn
// matters, and it keeps all its digits at any position a float can count to.
template <uint width>
inline Turn<typename Width<width>::type> from_frequencies(device const float* high,
                                                          device const float* low, long position,
                                                          uint pair) {
  using V = typename Width<width>::type;
  const V p = V(float(position));
  const V frequency = Width<width>::load(high + pair);
  const V whole = rint(p * frequency);
  const V fraction = fma(p, frequency, -whole) + p * Width<width>::load(low + pair);
  return {cospi(2.0f * fraction), sinpi(2.0f * fraction)};
}

// --- pairs in memory -----------------------------------------------------------------------------

template <typename V>
struct Pair {
  V first;
  V second;
};

template <bool interleaved, uint width, typename T>
inline Pair<typename Width<width>::type> load_pair(device const T* head, uint pair, uint half_dim) {
  using W = Width<width>;
  if constexpr (!interleaved) return {W::load(head + pair), W::load(head + half_dim + pair)};
  const auto a = W::load(head + 2 * pair);
  const auto b = W::load(head + 2 * pair + width);
  if constexpr (width == 1)
    return {a, b};
  else
    return {typename W::type(a.x, a.z, b.x, b.z), typename W::type(a.y, a.w, b.y, b.w)};
}

template <bool interleaved, uint width, typename T, typename V>
inline void store_pair(device T* head, uint pair, uint half_dim, Pair<V> value) {
  using W = Width<width>;
  const V a = value.first;
  const V b = value.second;
  if constexpr (!interleaved) {
    W::store(head + pair, a);
    W::store(head + half_dim + pair, b);
  } else if constexpr (width == 1) {
    W::store(head + 2 * pair, a);
    W::store(head + 2 * pair + 1, b);
  } else {
    W::store(head + 2 * pair, V(a.x, b.x, a.y, b.y));
    W::store(head + 2 * pair + width, V(a.z, b.z, a.w, b.w));
  }
}

// --- the kernel ----------------------------------------------------------------------------------

// Threads along x: pairs, then the elements that are copied. Tables are of type A, frequencies are
// floats.
template <typename T, typename A, bool interleaved, bool tables, uint width>
[[kernel]] void rope(device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
                     device T* turned_q [[buffer(2)]], device T* turned_k [[buffer(3)]],
                     device const A* first_table [[buffer(4)]],
                     device const A* second_table [[buffer(5)]],
                     device const long* ids [[buffer(6)]], constant Numbers& numbers [[buffer(7)]],
                     uint3 in_grid [[thread_position_in_grid]]) {
  using W = Width<width>;
  const uint item = in_grid.x * width;
  const uint token = in_grid.y;
  const long sample = token / numbers.sequence;
  const long place = token % numbers.sequence;
  const bool turns = item < numbers.half_dim;
  Turn<typename W::type> turn;
  if (turns) {
    const long position = position_of(token, ids, numbers);
    if constexpr (tables) {
      turn = from_tables<width>(first_table, second_table, position, item, numbers);
    } else {
      turn = from_frequencies<width>(first_table, second_table, position, item);
    }
    turn.sine *= numbers.direction;
  }
  const uint begin = in_grid.z * numbers.heads;
  const uint end = min(begin + numbers.heads, numbers.q_heads + numbers.k_heads);
  for (uint i = begin; i < end; ++i) {
    const bool of_q = i < numbers.q_heads;
    const uint head = of_q ? i : i - numbers.q_heads;
    device const T* source =
        (of_q ? q : k) + start_of(of_q ? numbers.q : numbers.k, sample, place, head);
    device T* target = (of_q ? turned_q : turned_k) +
                       start_of(of_q ? numbers.turned_q : numbers.turned_k, sample, place, head);
    if (turns) {
      const auto x = load_pair<interleaved, width>(source, item, numbers.half_dim);
      store_pair<interleaved, width>(
          target, item, numbers.half_dim,
          Pair<typename W::type>{x.first * turn.cosine - x.second * turn.sine,
                                 x.second * turn.cosine + x.first * turn.sine});
    } else {
      W::store(target + numbers.half_dim + item, W::load(source + numbers.half_dim + item));
    }
  }
}

// --- instances: rope_<pairs>_<angles>_<vec4 or scalar>_<dtype> -----------------------------------

// `tables` have the dtype of q and k, `float_tables` are of floats.
#define ROPE_INSTANCE(text, ...) \
  template [[host_name(text)]] [[kernel]] decltype(rope<__VA_ARGS__>) rope<__VA_ARGS__>;
#define TABLES(tables, word, width, T, A)                               \
  ROPE_INSTANCE("rope_split_" tables word #T, T, A, false, true, width) \
  ROPE_INSTANCE("rope_interleaved_" tables word #T, T, A, true, true, width)
#define ROPES(word, width, T)                                              \
  TABLES("tables_", word, width, T, T)                                     \
  ROPE_INSTANCE("rope_split_base_" word #T, T, float, false, false, width) \
  ROPE_INSTANCE("rope_interleaved_base_" word #T, T, float, true, false, width)
#define ROPES_OF_TYPE(T) ROPES("vec4_", 4, T) ROPES("scalar_", 1, T)
#define FLOAT_TABLES(T)                         \
  TABLES("float_tables_", "vec4_", 4, T, float) \
  TABLES("float_tables_", "scalar_", 1, T, float)

ROPES_OF_TYPE(float)
ROPES_OF_TYPE(half)
ROPES_OF_TYPE(bfloat)
FLOAT_TABLES(half)
FLOAT_TABLES(bfloat)
