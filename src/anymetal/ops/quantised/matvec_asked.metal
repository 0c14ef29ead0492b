// A row of activations of 16 bits times weights of 4 bits, y = f(x W^T + bias), by products of
// matrices whose words are asked for ahead.
//
// A threadgroup takes some tiles of 16 rows of W, and each of its simdgroups neighbouring blocks of
// them. A row of a left matrix is one of W: four lanes share it, and ask for 16 bytes of its words
// each.
//
// Two bytes of a word, or the upper codes in them, are a pair of halves by their bits alone: they
// stand in the last places of the mantissa, where they count 2^-24, and no bit is set before them.
// So activations become halves, multiplied by a power of two that makes the largest of a block
// nearly as large as a half can be. What is lost of the small ones is 2^-35 of it at most. (Of an
// infinite activation comes a NaN.) A byte is its lower code and 16 times its upper one: what is
// too much is a product of the upper codes with the lower ones' activations.
//
// A pair has codes of two groups. What keeps these apart is the right matrix: activations of a
// chunk are rows of one of its columns, and elsewhere that column is zero. So a lane finds in its
// columns the sums of two rows of W over two chunks, and scales them.
#include <metal_simdgroup_matrix>

#include "shared/ahead.h"
#include "shared/matrix_lanes.h"
#include "shared/packed.h"

constant constexpr uint rows_of_tile = 16;
constant constexpr uint most_threads = 512;  // of a multiprocessor: so many that none spills
constant constexpr uint block_columns = Packed<4>::columns;
constant constexpr float code_unit = 0x1p-24f;
constant constexpr uint slots_of_tile = 4;  // two rows, two halves of a block

// --- activations ---------------------------------------------------------------------------------

// Halves as right matrices want them: eight rows of a column side by side, every second of which is
// zero. A cell has those of a chunk, and columns of a matrix are a cell apart:
//
//   chunks 1 0 5 4 | four cells of zeros | chunks 3 2 7 6 | one that is read, but of no use
//
// Upper codes are multiplied with what begins at the first cell, or that of the fifth, bytes with
// what begins one cell later. The distance is such that columns of a matrix are in different banks.
struct Window {
  static constexpr constant uint row = 8, cell = 72, cells = 13, zeros = 4;
  static constexpr constant uint size = cells * cell;
  static constexpr constant uint vectors = size / 8;
  threadgroup half* halves;

  // Of half `h` of the words, and of word `j` of four. What lanes of both halves write at once is
  // in different banks.
  static constexpr uint row_of(uint h, uint j) { return h * 4 + j; }

  void clear(uint lane) const thread {
    constexpr uint of_cell = cell / 8;
    threadgroup uint4* to = reinterpret_cast<threadgroup uint4*>(halves) + 4 * of_cell;
#pragma unroll
    for (uint n = 0; n < 2; ++n) {
      const uint i = n * 32 + lane;
      if (i < (zeros + 1) * of_cell) to[i < zeros * of_cell ? i : i + 4 * of_cell] = uint4(0);
    }
  }
  // `i` is the place of upper codes in the words' halves, or that of bytes.
  void load(thread simdgroup_half8x8& right, uint i, uint h, uint j) const thread {
    threadgroup const half* from = halves + (i / 2 * 4 + (i + 1) % 2) * cell + row_of(h, j) * row;
    simdgroup_load(right, from, cell, ulong2(0), true);
  }
};

// What a lane has of a block's activations: four neighbours each of two chunks, four apart.
struct Share {
  uint place;    // of the words' halves
  uint quarter;  // of a half of the words

  explicit Share(uint lane) : place(lane / 8 % 2 * 2 + lane / 16), quarter(lane % 8) {}
  uint column() const thread { return place * 32 + quarter * 4; }
  uint half_of_words() const thread { return quarter / 4; }
};

struct Loaded {
  uint2 low, high;

  template <typename T>
  void load(device T* x) thread {
    low = *reinterpret_cast<device uint2*>(x);
    high = *reinterpret_cast<device uint2*>(x + block_columns / 2);
  }
};

template <typename T>
inline float4 floats(uint2 four) {
  return float4(as_type<vec<T, 4>>(four));
}

// The powers of two that make the largest of the activations 2^14 to 2^15, and take that back but
// for 2^12, which a result may be too large for.
struct Factors {
  static constexpr constant float rest = 0x1p12f;
  float there, back;

  explicit Factors(float largest_of_lane) {
    const uint largest = simd_max(as_type<uint>(largest_of_lane));
    const uint exponent = clamp(largest >> 23, 15u, 254u);
    there = as_type<float>((268 - exponent) << 23);
    back = as_type<float>((exponent - 2) << 23);
  }
};

// A lane's activations of a block as halves; their sum over the two chunks whose sums of products
// the lane has, and what takes the factor back.
struct Scaled {
  uint4 pairs;
  float sum, back;

  void store(Window window, Share share) const thread {
    const uint cell = share.place / 2 * 8 + (share.place + 1) % 2;
    const uint first = Window::row_of(share.half_of_words(), 0) * Window::row;
    threadgroup half* begin = window.halves + cell * Window::cell + first;
    threadgroup uint* to = reinterpret_cast<threadgroup uint*>(begin) + share.quarter % 4;
#pragma unroll
    for (uint j = 0; j < 4; ++j) {
      threadgroup uint* row = to + Window::row_of(0, j) * Window::row / 2;
      row[0] = pairs[j] & 0xffffu;
      row[Window::cell] = pairs[j] & 0xffff0000u;
    }
  }
};

inline float of_lane(float value, uint lane) { return simd_shuffle(value, ushort(lane)); }

// Lanes with an odd number take over the upper chunks, the others the lower ones; then those add
// up that have the same chunks.
inline float sum_of_chunks(float low, float high, uint lane) {
  const bool upper = lane % 2 != 0;
  float sum = (upper ? high : low) + of_lane(upper ? low : high, lane ^ 1);
  sum += of_lane(sum, lane ^ 2);
  sum += of_lane(sum, lane ^ 4);
  return sum + of_lane(sum, lane ^ 16);
}

template <typename T>
inline Scaled scaled(thread const Loaded& loaded, uint lane, uint zero) {
  // Single words, of which a compiler takes halves more easily than of what was loaded at once.
  const uint4 words = forgotten(uint4(loaded.low, loaded.high), zero);
  float4 low = floats<T>(words.xy), high = floats<T>(words.zw);
  const Factors factors(largest_of(fast::max(abs(low), abs(high))));
  low *= factors.there;
  high *= factors.there;
  uint4 pairs;
#pragma unroll
  for (uint j = 0; j < 4; ++j) pairs[j] = as_type<uint>(half2(float2(low[j], high[j])));
  const float sum = sum_of_chunks(sum_of(low), sum_of(high), lane);
  return {forgotten(pairs, zero), sum, factors.back};
}

// --- products ------------------------------------------------------------------------------------

// A lane's words of a tile's block: those of two rows, eight apart, and the two halves of each.
struct Words {
  uint4 of[2][2];

  half2 pair(uint r, uint i, uint h, uint j) const thread {
    const uint moved = i < 2 ? of[r][h][j] : of[r][h][j] >> 8;
    return as_type<half2>(moved & (i % 2 == 0 ? 0x00ff00ffu : 0x00f000f0u));
  }
};

struct Rights {
  simdgroup_half8x8 of[4][2][4];  // by place, half of the words, and word of four

  explicit Rights(Window window) {
#pragma unroll
    for (uint n = 0; n < 32; ++n) window.load(of[n / 8][n / 4 % 2][n % 4], n / 8, n / 4 % 2, n % 4);
  }
};

// Sums of two rows of W: over bytes, and over 16 times the upper codes; each in two parts, since a
// product waits for the sum that it is added to.
struct Sums {
  simdgroup_float8x8 of[2][2][2];

  // A code of 8 stands for 0.
  explicit Sums(float sum) {
    const float start = sum * (-8 * code_unit);
#pragma unroll
    for (uint r = 0; r < 2; ++r) {
      of[0][0][r].thread_elements() = float2(start);
      of[0][1][r] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      of[1][0][r] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      of[1][1][r] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
  void add(thread const Words& words, thread const Rights& rights, uint i, uint h) thread {
#pragma unroll
    for (uint j = 0; j < 4; ++j)
#pragma unroll
      for (uint r = 0; r < 2; ++r) {
        simdgroup_half8x8 left;
        left.thread_elements() = words.pair(r, i, h, j);
        thread simdgroup_float8x8& sum = of[i % 2][h][r];
        simdgroup_multiply_accumulate(sum, left, rights.of[i][h][j], sum);
      }
  }
  float2 both(uint kind, uint r) const thread {
    return of[kind][0][r].thread_elements() + of[kind][1][r].thread_elements();
  }
  float result(uint r) const thread {
    const float2 upper = both(1, r);
    return fma(upper[0], 1.0f / 16, both(0, r)[0] - upper[1]);
  }
};

// --- weights -------------------------------------------------------------------------------------

// Where a lane's rows of a threadgroup's tiles begin in a block, eight rows apart: words, the scale
// of the group that it sums, and its offset.
template <typename S, typename Offset, uint slots, uint threads>
struct Rows {
  using Queue = Asked<slots, threads>;
  device const uint* words;
  device const S* scales;
  device const Offset* offsets;
  uint words_apart, groups_apart;

  device const uint* words_of(uint t, uint r) const thread {
    return words + ulong(words_apart) * (t * 2 + r);
  }
  S scale(uint t, uint r) const thread { return scales[ulong(groups_apart) * (t * 2 + r)]; }
  device const Offset* offset(uint t, uint r) const thread {
    return offsets + ulong(groups_apart) * (t * 2 + r);
  }
  void ask(uint slot, uint t) const thread {
#pragma unroll
    for (uint r = 0; r < 2; ++r) {
      Queue::ask(slot + r * 2, words_of(t, r));
      Queue::ask(slot + r * 2 + 1, words_of(t, r) + 16);
    }
  }
  Words take(uint slot, uint t) const thread {
    Words found;
#pragma unroll
    for (uint r = 0; r < 2; ++r) {
      found.of[r][0] = Queue::take(slot + r * 2, words_of(t, r));
      found.of[r][1] = Queue::take(slot + r * 2 + 1, words_of(t, r) + 16);
    }
    return found;
  }
};

// By the names that the host has for them.
using symmetric = Symmetric;
using zero_point = ZeroPoint;
using affine = Affine;

// `chunks` of 32 weights are a group: two or four. Rows have whole blocks, and are as many as a
// threadgroup takes, or more. Words of so many blocks of each tile are on their way. Where nothing
// is activated, no code for it lies before the end, where all threadgroups fetch code at once.
template <typename T, typename S, typename Kind, uint chunks, uint tiles, uint ahead,
          uint simdgroups, bool is_activated>
[[kernel, max_total_threads_per_threadgroup(most_threads)]] void matvec_asked(
    device T* x [[buffer(0)]], device const uint* words [[buffer(1)]],
    device const S* scales [[buffer(2)]],
    device const typename Kind::template Offset<S>* offsets [[buffer(3)]],
    device const T* bias [[buffer(4)]], device T* y [[buffer(5)]],
    constant Numbers& numbers [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint in_group [[thread_index_in_threadgroup]]) {
  using Offset = typename Kind::template Offset<S>;
  constexpr uint groups = Packed<4>::chunks / chunks;  // of a block
  constexpr uint slots_of_block = tiles * slots_of_tile, slots = ahead * slots_of_block;
  constexpr uint rows_of_threadgroup = tiles * rows_of_tile;
  using OfBlock = Rows<S, Offset, slots, simdgroups * 32>;
  using Queue = typename OfBlock::Queue;
  static_assert(rows_of_threadgroup * 16 <= Window::size * 2, "results of a simdgroup");
  threadgroup uint4 memory[simdgroups * Window::vectors];
  const Window window = {reinterpret_cast<threadgroup half*>(memory) + simd * Window::size};

  const uint blocks = numbers.columns / block_columns;
  const uint of_simdgroup = (blocks + simdgroups - 1) / simdgroups;
  // One for which no blocks are left takes the last one, and its results are dropped.
  const bool is_needed = simd * of_simdgroup < blocks;
  const uint first = min(simd * of_simdgroup, blocks - 1);
  const uint count = min(of_simdgroup, blocks - first);
  const Share share(lane);
  // A compiler must not know how places came about: it would compute them again for the loop.
  const uint zero = numbers.split >> 31;
  const uint in_row = forgotten(uint4(first * block_columns + share.column()), zero).x;
  device T* own = x + group.y * numbers.stride + in_row;
  // They come first: else they were behind all the words. What comes after a barrier is not put
  // before it, since a compiler does not know that nobody writes them.
  Loaded loaded;
  loaded.load(own);
  simdgroup_barrier(mem_flags::mem_device);

  const Lane at = lane_of(lane);
  const uint quarter = at.column / 2;
  const uint own_group = (quarter % 2 * 2 + quarter / 2) * 2 / chunks;
  // The last threadgroup ends with the last row. Those that the one before it has, too, it drops.
  const uint begin_row = min(group.x * rows_of_threadgroup, numbers.rows - rows_of_threadgroup);
  const uint begin = forgotten(uint4((begin_row + at.row) * blocks + first), zero).x;
  OfBlock rows;
  rows.words = words + ulong(begin) * 32 + at.column * 2;
  rows.scales = scales + ulong(begin) * groups + own_group;
  rows.offsets = offsets + ulong(begin) * groups + own_group;
  rows.words_apart = numbers.columns;  // a word has eight
  rows.groups_apart = blocks * 8 * groups;
  OfBlock asked = rows;  // of the next block that is asked for
#pragma unroll
  for (uint u = 0; u < ahead; ++u) {
#pragma unroll
    for (uint t = 0; t < tiles; ++t) {
      if (u == 0 || u < count) asked.ask(u * slots_of_block + t * slots_of_tile, t);
      Queue::close();
    }
    asked.words += 32;
  }
  S next_scales[tiles][2];
#pragma unroll
  for (uint n = 0; n < tiles * 2; ++n) next_scales[n / 2][n % 2] = rows.scale(n / 2, n % 2);
  window.clear(lane);

  float totals[tiles][2] = {};
  uint block = 0, slot_of_block = 0;
  do {
    const bool has_next = block + 1 < count;
    const Scaled staged = scaled<T>(loaded, lane, zero);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    staged.store(window, share);
    own += block_columns;
    // Between barriers, lest a compiler loads them when they are needed.
    if (has_next) loaded.load(own);
    simdgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    const Rights rights(window);
    rows.scales += groups;
#pragma unroll
    for (uint t = 0; t < tiles; ++t) {
      Queue::await(ahead * tiles - 1);
      const uint slot = slot_of_block + t * slots_of_tile;
      const Words taken = rows.take(slot, t);
      if (block + ahead < count) asked.ask(slot, t);
      Queue::close();
      // Lest a compiler asks behind the products.
      simdgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
      float scale[2];
#pragma unroll
      for (uint r = 0; r < 2; ++r) {
        scale[r] = float(next_scales[t][r]);
        if (has_next) next_scales[t][r] = rows.scale(t, r);
      }
      Sums sums(staged.sum);
#pragma unroll
      for (uint n = 0; n < 8; ++n) sums.add(taken, rights, n / 2, n % 2);
#pragma unroll
      for (uint r = 0; r < 2; ++r) {
        totals[t][r] = fma(sums.result(r) * scale[r], staged.back, totals[t][r]);
        if (Kind::shifted) {
          const float shift = Kind::template shift<4>(scale[r], rows.offset(t, r)) * code_unit;
          totals[t][r] = fma(shift * staged.sum, staged.back, totals[t][r]);
        }
      }
    }
    rows.words += 32;
    rows.offsets += groups;
    asked.words += 32;
    slot_of_block = (slot_of_block + slots_of_block) % slots;
  } while (++block < count);

  // Of the four lanes of a row side by side, each simdgroup's where its activations were.
  threadgroup float4* parts = reinterpret_cast<threadgroup float4*>(memory);
  simdgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
  for (uint t = 0; t < tiles; ++t)
#pragma unroll
    for (uint r = 0; r < 2; ++r) {
      const uint row = simd * Window::vectors + t * rows_of_tile + r * 8 + at.row;
      reinterpret_cast<threadgroup float*>(parts + row)[quarter] = is_needed ? totals[t][r] : 0.0f;
    }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint row = begin_row + in_group;
  if (in_group < rows_of_threadgroup && row >= group.x * rows_of_threadgroup) {
    float4 four = 0.0f;
#pragma unroll
    for (uint i = 0; i < simdgroups; ++i) four += parts[i * Window::vectors + in_group];
    float total = sum_of(four) * Factors::rest;
    if (numbers.has_bias) total += float(bias[row]);
    if (is_activated) total = activated(numbers.activation, total);
    y[group.y * numbers.rows + row] = T(total);
  }
}
