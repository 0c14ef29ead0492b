// Cache maintenance: new keys and values go into their slots, and blocks into other blocks.
//
// A slot or a block that does not exist is skipped, so nothing outside the caches is touched.
#include "shared/fp8.h"

// How a float becomes an element of a cache.
template <typename T>
struct Plain {
  using storage = T;
  static T encode(float value) { return T(value); }
};
template <typename F>
struct Coded {
  using storage = uchar;
  static uchar encode(float value) { return fp8_from_float<F, true>(value); }
};

struct TokenStrides {
  long token;
  long head;
};

struct CacheStrides {
  long block;
  long slot;
  long head;
};

inline long start_of(TokenStrides strides, long token, long head) {
  return token * strides.token + head * strides.head;
}
inline long start_of(CacheStrides strides, long block, long slot, long head) {
  return block * strides.block + slot * strides.slot + head * strides.head;
}

struct CacheNumbers {
  long block_size;  // slots of a block
  long blocks;
  bool has_key_scales;
  bool has_value_scales;
  TokenStrides key, value;
  CacheStrides key_cache, value_cache;
};

// Threads: elements of a head, heads, tokens. `slots` has the slot of each token, of all blocks'
// one after the other; a negative one means nowhere.
template <typename T, typename C>
[[kernel]] void reshape_and_cache(
    device const T* key [[buffer(0)]], device const T* value [[buffer(1)]],
    device typename C::storage* key_cache [[buffer(2)]],
    device typename C::storage* value_cache [[buffer(3)]], device const long* slots [[buffer(4)]],
    device const float* key_scales [[buffer(5)]], device const float* value_scales [[buffer(6)]],
    constant CacheNumbers& numbers [[buffer(7)]], uint3 in_grid [[thread_position_in_grid]]) {
  const uint at = in_grid.x, head = in_grid.y, token = in_grid.z;
  const long slot = slots[token];
  if (slot < 0 || slot >= numbers.block_size * numbers.blocks) return;
  const float key_scale = numbers.has_key_scales ? key_scales[head] : 1.0f;
  const float value_scale = numbers.has_value_scales ? value_scales[head] : 1.0f;
  const float k = float(key[start_of(numbers.key, token, head) + at]);
  const float v = float(value[start_of(numbers.value, token, head) + at]);
  const long block = slot / numbers.block_size, place = slot % numbers.block_size;
  key_cache[start_of(numbers.key_cache, block, place, head) + at] = C::encode(k / key_scale);
  value_cache[start_of(numbers.value_cache, block, place, head) + at] = C::encode(v / value_scale);
}

struct CopyNumbers {
  uint heads;  // a row is a slot and a head
  long source_blocks;
  long target_blocks;
  CacheStrides source, target;  // in words
};

// Threads: words of a row, rows of a block, pairs of blocks. A dense block is a single row.
template <typename W>
[[kernel]] void copy_blocks(device const W* source [[buffer(0)]], device W* target [[buffer(1)]],
                            device const long* pairs [[buffer(2)]],
                            constant CopyNumbers& numbers [[buffer(3)]],
                            uint3 in_grid [[thread_position_in_grid]]) {
  const long from = pairs[2 * in_grid.z], to = pairs[2 * in_grid.z + 1];
  if (from < 0 || from >= numbers.source_blocks || to < 0 || to >= numbers.target_blocks) return;
  const long slot = in_grid.y / numbers.heads, head = in_grid.y % numbers.heads;
  target[start_of(numbers.target, to, slot, head) + in_grid.x] =
      source[start_of(numbers.source, from, slot, head) + in_grid.x];
}

// --- instances -----------------------------------------------------------------------------------

#define INSTANCE(name, ...) \
  template [[host_name(name)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
#define CACHES(T)                                                                  \
  INSTANCE("reshape_and_cache_" #T "_" #T, reshape_and_cache<T, Plain<T>>)         \
  INSTANCE("reshape_and_cache_" #T "_fp8_e4m3", reshape_and_cache<T, Coded<E4m3>>) \
  INSTANCE("reshape_and_cache_" #T "_fp8_e5m2", reshape_and_cache<T, Coded<E5m2>>)

CACHES(float)
CACHES(half)
CACHES(bfloat)
INSTANCE("copy_blocks_uchar", copy_blocks<uchar>)
INSTANCE("copy_blocks_ushort", copy_blocks<ushort>)
INSTANCE("copy_blocks_uint", copy_blocks<uint>)
INSTANCE("copy_blocks_uint4", copy_blocks<uint4>)
