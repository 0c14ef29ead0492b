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

// Threads: elements of a head, heads, tokens. `slots` has the slot of each token, of all blocks'
// one after the other; a negative one means nowhere.
//
// sizes: heads, slots of a block, blocks, flags (1: key scales, 2: value scales).
// strides: of token and head in key and value; of block, slot and head in both caches.
template <typename T, typename C>
[[kernel]] void reshape_and_cache(
    device const T* key [[buffer(0)]], device const T* value [[buffer(1)]],
    device typename C::storage* key_cache [[buffer(2)]],
    device typename C::storage* value_cache [[buffer(3)]], device const long* slots [[buffer(4)]],
    device const float* key_scales [[buffer(5)]], device const float* value_scales [[buffer(6)]],
    constant long* sizes [[buffer(7)]], constant long* strides [[buffer(8)]],
    uint3 in_grid [[thread_position_in_grid]]) {
  const uint at = in_grid.x, head = in_grid.y, token = in_grid.z;
  const long slot = slots[token];
  if (slot < 0 || slot >= sizes[1] * sizes[2]) return;
  const long block = slot / sizes[1], place = slot % sizes[1];
  const float key_scale = sizes[3] & 1 ? key_scales[head] : 1.0f;
  const float value_scale = sizes[3] & 2 ? value_scales[head] : 1.0f;
  const float k = float(key[token * strides[0] + head * strides[1] + at]);
  const float v = float(value[token * strides[2] + head * strides[3] + at]);
  key_cache[block * strides[4] + place * strides[5] + head * strides[6] + at] =
      C::encode(k / key_scale);
  value_cache[block * strides[7] + place * strides[8] + head * strides[9] + at] =
      C::encode(v / value_scale);
}

// Threads: words of a row, rows of a block, pairs of blocks. A dense block is a single row.
//
// sizes: heads (a row is a slot and a head), blocks of the source, blocks of the target.
// strides: of block, slot and head in the source and in the target, in words.
template <typename W>
[[kernel]] void copy_blocks(device const W* source [[buffer(0)]], device W* target [[buffer(1)]],
                            device const long* pairs [[buffer(2)]],
                            constant long* sizes [[buffer(3)]],
                            constant long* strides [[buffer(4)]],
                            uint3 in_grid [[thread_position_in_grid]]) {
  const long from = pairs[2 * in_grid.z], to = pairs[2 * in_grid.z + 1];
  if (from < 0 || from >= sizes[1] || to < 0 || to >= sizes[2]) return;
  const long slot = in_grid.y / uint(sizes[0]), head = in_grid.y % uint(sizes[0]);
  target[to * strides[3] + slot * strides[4] + head * strides[5] + in_grid.x] =
      source[from * strides[0] + slot * strides[1] + head * strides[2] + in_grid.x];
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
