// A row of activations of 16 bits times weights of 4 bits, y = f(x W^T + bias), by products of
// matrices.
//
// A threadgroup takes 16 rows of W, and each of its simdgroups every so many-th block of them. A
// row of a left matrix is one of W: four lanes share it, and read 16 bytes of its words each. The
// activations are the first column of the right matrix; what its other columns have is whatever
// lies behind them, and nobody reads what comes of it.
//
// A code becomes the number 1 + code / 16 by its bits alone: four of them below the exponent of 1.
// What that is too much, 24 times the sum of the activations, is taken away from sixteen times the
// products a group at a time. (Of an infinite activation comes a NaN.)
#include <metal_simdgroup_matrix>

#include "shared/ahead.h"
#include "shared/matrix_lanes.h"
#include "shared/packed.h"

constant constexpr uint rows_of_threadgroup = 16;
constant constexpr uint most_simdgroups = 16;
constant constexpr uint most_threads = 512;  // so many that a thread has registers for two blocks
constant constexpr uint block_columns = Packed<4>::columns;
// Of activations of a block, and what matrices at its end reach behind it.
constant constexpr uint room = block_columns + 64;

// Where a code stands below the exponent, and the number 1, twice.
template <typename T>
struct Bits;
template <>
struct Bits<half> {
  static constexpr constant uint place = 6;
  static constexpr constant uint one = 0x3c003c00u;
  static constexpr constant uint minus_half = 0x82008200u;  // makes -1.5 of it
};
template <>
struct Bits<bfloat> {
  static constexpr constant uint place = 3;
  static constexpr constant uint one = 0x3f803f80u;
  static constexpr constant uint minus_half = 0x80408040u;
};

// 1 + code / 16 for code `i` of each half of a word; `one` is two numbers 1.
template <typename T, uint i>
inline vec<T, 2> placed(uint halves, uint one) {
  constexpr uint from = i * 4, to = Bits<T>::place;
  const uint moved = from > to ? halves >> (from - to) : halves << (to - from);
  return as_type<vec<T, 2>>((moved & (0x000f000fu << to)) | one);
}

// A lane's words of 16 rows of a block: those of two rows, eight apart, and the two halves of each.
struct Words {
  uint4 of[2][2];
};

// What a simdgroup needs of a block, as it lies in memory: two scales a word. A scale that were
// taken out when it is loaded would be waited for before the next load.
template <typename S, uint groups>
struct Part {
  Words words;
  uint4 activations;  // eight neighbours
  uint scales[2][groups / 2];

  void load_scales(uint row, device const S* from) thread {
    if constexpr (groups == 2) {
      scales[row][0] = *reinterpret_cast<device const uint*>(from);
    } else {
#pragma unroll
      for (uint i = 0; i < groups / 4; ++i) {
        const uint2 four = reinterpret_cast<device const uint2*>(from)[i];
        scales[row][2 * i] = four.x;
        scales[row][2 * i + 1] = four.y;
      }
    }
  }
  float scale(uint row, uint group) const thread {
    return float(as_type<vec<S, 2>>(scales[row][group / 2])[group % 2]);
  }
};

// Where a lane's rows begin.
template <typename T, typename S, typename Offset>
struct Rows {
  device const T* x;
  device const uint* words[2];
  device const S* scales[2];
  device const Offset* offsets[2];

  template <uint groups>
  void load(thread Part<S, groups>& part, uint block) const thread {
#pragma unroll
    for (uint r = 0; r < 2; ++r) {
#pragma unroll
      for (uint half_of_row = 0; half_of_row < 2; ++half_of_row)
        part.words.of[r][half_of_row] = read_once(
            reinterpret_cast<device const uint4*>(words[r] + block * 32) + half_of_row * 4);
      part.load_scales(r, scales[r] + block * groups);
    }
    part.activations = *reinterpret_cast<device const uint4*>(x + block * block_columns);
  }
};

// Puts the activations in the order in which codes stand: of 16 columns, the first and second of
// every four, then the third and fourth.
template <typename T>
inline void stage(threadgroup T* staged, uint4 activations, uint lane) {
  threadgroup uint2* pairs = reinterpret_cast<threadgroup uint2*>(staged);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  pairs[lane] = activations.xz;
  pairs[32 + lane] = activations.yw;
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// The codes of a lane: those at the same places of two neighbouring words stand side by side.
struct Codes {
  uint low[2][2][2];   // of the words' lower halves, by row, half of the block, and pair of words
  uint high[2][2][2];  // of the upper ones

  explicit Codes(thread const Words& words) {
#pragma unroll
    for (uint r = 0; r < 2; ++r)
#pragma unroll
      for (uint h = 0; h < 2; ++h)
#pragma unroll
        for (uint k = 0; k < 2; ++k) {
          const ushort2 first = as_type<ushort2>(words.of[r][h][2 * k]);
          const ushort2 second = as_type<ushort2>(words.of[r][h][2 * k + 1]);
          low[r][h][k] = as_type<uint>(ushort2(first.x, second.x));
          high[r][h][k] = as_type<uint>(ushort2(first.y, second.y));
        }
  }
};

// What is summed over a group: the products with two rows of codes, and the activations alone where
// groups have offsets. Codes are 1.5 and a sixteenth of what they stand for: where they have none,
// that goes with the products.
template <typename T, bool shifted>
struct Sums {
  simdgroup_float8x8 products[2];
  simdgroup_float8x8 activations;

  Sums() {
    activations = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    products[0] = products[1] = activations;
  }

  void add(uint r, simdgroup_matrix<T, 8, 8> left, simdgroup_matrix<T, 8, 8> right) thread {
    simdgroup_multiply_accumulate(products[r], left, right, products[r]);
  }
  void add_activations(simdgroup_matrix<T, 8, 8> right, uint one) thread {
    simdgroup_matrix<T, 8, 8> left;
    left.thread_elements() = as_type<vec<T, 2>>(shifted ? one : one | Bits<T>::minus_half);
    if (shifted) {
      simdgroup_multiply_accumulate(activations, left, right, activations);
    } else {
      add(0, left, right);
      add(1, left, right);
    }
  }
  float2 results() const thread {
    const float2 found(products[0].thread_elements()[0], products[1].thread_elements()[0]);
    return shifted ? fma(found, 16.0f, activation() * -24.0f) : found * 16.0f;
  }
  float activation() const thread { return activations.thread_elements()[0]; }
};

// Adds chunks from `i` to `end`.
template <uint i, uint end, typename T, bool shifted>
inline void add_chunks(thread Sums<T, shifted>& sums, thread const Codes& codes,
                       threadgroup const T* staged, uint one) {
#pragma unroll
  for (uint h = 0; h < 2; ++h) {
    simdgroup_matrix<T, 8, 8> left[2][2], right[2];
#pragma unroll
    for (uint k = 0; k < 2; ++k) {
      simdgroup_load(right[k], staged + k * 128 + (i * 2 + h) * 8, 8, ulong2(0), true);
#pragma unroll
      for (uint r = 0; r < 2; ++r)
        left[r][k].thread_elements() =
            placed<T, i % 4>(i < 4 ? codes.low[r][h][k] : codes.high[r][h][k], one);
    }
#pragma unroll
    for (uint r = 0; r < 2; ++r)
#pragma unroll
      for (uint k = 0; k < 2; ++k) sums.add(r, left[r][k], right[k]);
#pragma unroll
    for (uint k = 0; k < 2; ++k) sums.add_activations(right[k], one);
  }
  if constexpr (i + 1 < end) add_chunks<i + 1, end>(sums, codes, staged, one);
}

// Adds groups from `g` on.
template <typename Kind, typename T, uint chunks, uint g, typename S, uint groups, typename Offset>
inline void add_groups(thread float2& totals, thread const Part<S, groups>& part,
                       thread const Codes& codes, threadgroup const T* staged, uint one,
                       thread const Rows<T, S, Offset>& rows, uint block) {
  Sums<T, Kind::shifted> sums;
  add_chunks<g * chunks, (g + 1) * chunks>(sums, codes, staged, one);
  const float2 scales(part.scale(0, g), part.scale(1, g));
  totals = fma(sums.results(), scales, totals);
  if (Kind::shifted) {
#pragma unroll
    for (uint r = 0; r < 2; ++r) {
      device const Offset* offset = rows.offsets[r] + block * groups + g;
      totals[r] = fma(Kind::template shift<4>(scales[r], offset), sums.activation(), totals[r]);
    }
  }
  if constexpr (g + 1 < groups)
    add_groups<Kind, T, chunks, g + 1>(totals, part, codes, staged, one, rows, block);
}

// `chunks` of 32 weights are a group. Rows have whole blocks.
template <typename T, typename S, typename Kind, uint chunks>
[[kernel, max_total_threads_per_threadgroup(most_threads)]] void matvec_matrices(
    device const T* x [[buffer(0)]], device const uint* words [[buffer(1)]],
    device const S* scales [[buffer(2)]],
    device const typename Kind::template Offset<S>* offsets [[buffer(3)]],
    device const T* bias [[buffer(4)]], device T* y [[buffer(5)]],
    constant Numbers& numbers [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint in_group [[thread_index_in_threadgroup]]) {
  using Offset = typename Kind::template Offset<S>;
  constexpr uint groups = Packed<4>::chunks / chunks;  // of a block
  threadgroup uint4 memory[most_simdgroups * room / 8];
  threadgroup float parts[most_simdgroups * rows_of_threadgroup];
  threadgroup T* staged = reinterpret_cast<threadgroup T*>(memory) + simd * room;
  // Behind the activations: never of use, but read.
  reinterpret_cast<threadgroup uint*>(staged + block_columns)[lane] = 0;

  const Lane at = lane_of(lane);
  const uint first = group.x * rows_of_threadgroup;
  const uint blocks = numbers.columns / block_columns;
  Rows<T, S, Offset> rows;
  rows.x = x + group.y * numbers.stride + lane * 8;
#pragma unroll
  for (uint r = 0; r < 2; ++r) {
    // Past the last row, the last one is read again, and its result dropped.
    const uint row = min(first + r * 8 + at.row, numbers.rows - 1);
    rows.words[r] = words + row * blocks * 32 + at.column * 2;
    rows.scales[r] = scales + row * blocks * groups;
    rows.offsets[r] = offsets + row * blocks * groups;
  }

  // In a register and not in the code: then taking two codes out is two instructions.
  const uint one = Bits<T>::one | (numbers.split >> 31);
  float2 totals = 0.0f;
  // One block is on its way while another is used.
  Part<S, groups> even, odd;
  if (simd < blocks) rows.load(even, simd);
  for (uint block = simd; block < blocks; block += 2 * simdgroups) {
    const uint next = block + simdgroups;
    if (next < blocks) rows.load(odd, next);
    stage<T>(staged, even.activations, lane);
    add_groups<Kind, T, chunks, 0>(totals, even, Codes(even.words), staged, one, rows, block);
    if (next >= blocks) break;
    if (next + simdgroups < blocks) rows.load(even, next + simdgroups);
    stage<T>(staged, odd.activations, lane);
    add_groups<Kind, T, chunks, 0>(totals, odd, Codes(odd.words), staged, one, rows, next);
  }

  if (at.column == 0) {
    parts[simd * rows_of_threadgroup + at.row] = totals[0];
    parts[simd * rows_of_threadgroup + 8 + at.row] = totals[1];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint row = first + in_group;
  if (in_group < rows_of_threadgroup && row < numbers.rows) {
    float total = 0.0f;
    for (uint i = 0; i < simdgroups; ++i) total += parts[i * rows_of_threadgroup + in_group];
    if (numbers.has_bias) total += float(bias[row]);
    y[group.y * numbers.rows + row] = T(activated(numbers.activation, total));
  }
}

// --- instances: matvec_matrices_<kind>_<chunks of a group>_<activations>_<scales> ---------------

#define MATRICES_INSTANCE(Kind, name, T, S, chunks)                                     \
  template [[host_name("matvec_matrices_" #name "_" #chunks "_" #T "_" #S)]] [[kernel]] \
  decltype(matvec_matrices<T, S, Kind, chunks>) matvec_matrices<T, S, Kind, chunks>;
#define MATRICES(Kind, name, T, S)       \
  MATRICES_INSTANCE(Kind, name, T, S, 1) \
  MATRICES_INSTANCE(Kind, name, T, S, 2) \
  MATRICES_INSTANCE(Kind, name, T, S, 4)

MATRICES(Symmetric, symmetric, half, half)
MATRICES(Symmetric, symmetric, bfloat, bfloat)
MATRICES(Symmetric, symmetric, bfloat, half)
MATRICES(ZeroPoint, zero_point, half, half)
MATRICES(ZeroPoint, zero_point, bfloat, bfloat)
MATRICES(Affine, affine, half, half)
MATRICES(Affine, affine, bfloat, bfloat)
