// A few rows of activations times quantised weights, y = f(x W^T + bias), and the gradient of x,
// dx = dy W.
//
// For the first, a simdgroup takes `rows_of_simdgroup` neighbouring rows of W and walks along them
// block by block. Lanes read neighbouring words and neighbouring activations, these once for all
// rows; scales are the same for all lanes. Several simdgroups may share the rows, each with every
// so many-th block. For the second, a simdgroup walks down the rows of a
// block, and its lanes need each other's sums for nothing.
#include "shared/packed.h"

constant constexpr uint rows_of_simdgroup = 4;
constant constexpr uint most_simdgroups = 16;

// What a row of weights is made of, from its beginning.
template <typename S, typename Offset>
struct Row {
  device const uint* words;
  device const S* scales;
  device const Offset* offsets;
};

// Adds a group's part of a dot product to `before`: activations `x`, times their codes' factors,
// with the codes of `word` from `first` on; `sum` is the sum of the activations.
template <typename Kind, uint bits, uint chunks, typename S, typename Offset>
inline float with_group(float before, uint word, uint first, thread const float* x, float sum,
                        device const S* scales, device const Offset* offsets) {
  float total = Packed<bits>::placed_code(word, first) * x[0];
#pragma unroll
  for (uint i = 1; i < chunks; ++i) {
    total = fma(Packed<bits>::placed_code(word, first + i), x[i], total);
  }
  const float scale = float(*scales);
  if (Kind::shifted) before = fma(Kind::template shift<bits>(scale, offsets), sum, before);
  return fma(total, scale, before);
}

constant constexpr uint blocks_at_once = 4;

// The scales of a block from `at` on, in one access.
template <typename S, uint count>
inline float scale_of(device const S* scales, uint at, uint which) {
  if constexpr (count == 1) {
    return float(scales[at]);
  } else {
    return float(reinterpret_cast<device const vec<S, count>*>(scales + at)[0][which]);
  }
}

// Adds four blocks from `first` on to the sums of all rows. Eight lanes share a block: a lane has
// four neighbouring words, and activations, of it.
template <typename Kind, uint bits, uint chunks, typename T, typename S, typename Offset>
inline void add_blocks(thread float* totals, uint first, device const T* x,
                       thread const Row<S, Offset>* row, uint exponent, uint lane) {
  constexpr uint groups = Packed<bits>::chunks / chunks;
  constexpr uint together = groups < 4 ? groups : 4;  // scales of an access
  const uint block = first + lane / 8, inside = lane % 8 * 4;
  x += block * Packed<bits>::columns + inside;
  uint4 words[rows_of_simdgroup];
#pragma unroll
  for (uint r = 0; r < rows_of_simdgroup; ++r)
    words[r] = *reinterpret_cast<device const uint4*>(row[r].words + block * 32 + inside);
#pragma unroll
  for (uint g = 0; g < groups; ++g) {
    float4 values[chunks];
    float sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < chunks; ++i) {
      const float4 value = Width<4>::load(x + (g * chunks + i) * 32);
      if (Kind::shifted) sum += sum_of(value);
      values[i] = value * Packed<bits>::placed_factor(g * chunks + i);
    }
    const uint at = block * groups + g;
#pragma unroll
    for (uint r = 0; r < rows_of_simdgroup; ++r) {
      float total = 0.0f;
#pragma unroll
      for (uint i = 0; i < chunks; ++i)
#pragma unroll
        for (uint j = 0; j < 4; ++j)
          total = fma(Packed<bits>::placed_code(words[r][j], g * chunks + i, exponent),
                      values[i][j], total);
      const float scale = scale_of<S, together>(row[r].scales, at - g % together, g % together);
      if (Kind::shifted)
        totals[r] = fma(Kind::template shift<bits>(scale, row[r].offsets + at), sum, totals[r]);
      totals[r] = fma(total, scale, totals[r]);
    }
  }
}

// `chunks` of 32 weights are a group. With `wide` most blocks are read four at once, 16 bytes of
// words a lane: rows have whole blocks, and activations and scales are aligned to four.
template <typename T, typename S, typename Kind, uint bits, uint chunks, bool wide>
[[kernel]] void matvec(device const T* x [[buffer(0)]], device const uint* words [[buffer(1)]],
                       device const S* scales [[buffer(2)]],
                       device const typename Kind::template Offset<S>* offsets [[buffer(3)]],
                       device const T* bias [[buffer(4)]], device T* y [[buffer(5)]],
                       constant Numbers& numbers [[buffer(6)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint simd [[simdgroup_index_in_threadgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
  using Offset = typename Kind::template Offset<S>;
  constexpr uint groups = Packed<bits>::chunks / chunks;  // of a block
  threadgroup float parts[most_simdgroups * rows_of_simdgroup];
  const uint split = numbers.split, part = simd % split;
  const uint first = (group.x * (simdgroups / split) + simd / split) * rows_of_simdgroup;
  const uint rows = numbers.rows, columns = numbers.columns;
  x += group.y * numbers.stride;

  // Past the last row, the last one is read again, and its result dropped.
  Row<S, Offset> row[rows_of_simdgroup];
#pragma unroll
  for (uint r = 0; r < rows_of_simdgroup; ++r) {
    const uint index = min(first + r, rows - 1);
    const uint start = index * (columns / (32 * chunks));
    row[r] = {words + index * Packed<bits>::words(columns), scales + start, offsets + start};
  }

  float totals[rows_of_simdgroup] = {};
  const uint blocks = columns / Packed<bits>::columns;
  uint done = 0;
  if (wide) {
    done = blocks / blocks_at_once * blocks_at_once;
    // The exponent in a register and not in the code: then taking a code out is one instruction.
    const uint exponent = placed_exponent | (numbers.split >> 31);
    for (uint block = part * blocks_at_once; block < done; block += split * blocks_at_once)
      add_blocks<Kind, bits, chunks>(totals, block, x, row, exponent, lane);
  }
  x += lane;
  for (uint block = done + part; block < blocks; block += split) {
    float values[Packed<bits>::chunks];
    float sums[groups] = {};
#pragma unroll
    for (uint i = 0; i < Packed<bits>::chunks; ++i) {
      const float value = float(x[block * Packed<bits>::columns + i * 32]);
      if (Kind::shifted) sums[i / chunks] += value;
      values[i] = value * Packed<bits>::placed_factor(i);
    }
#pragma unroll
    for (uint r = 0; r < rows_of_simdgroup; ++r) {
      const uint word = row[r].words[block * 32 + lane];
#pragma unroll
      for (uint g = 0; g < groups; ++g) {
        totals[r] = with_group<Kind, bits, chunks>(totals[r], word, g * chunks, values + g * chunks,
                                                   sums[g], row[r].scales + block * groups + g,
                                                   row[r].offsets + block * groups + g);
      }
    }
  }

  // The end of a row, less than a block.
  const uint left = part == 0 ? (columns - blocks * Packed<bits>::columns) / (32 * chunks) : 0;
  for (uint g = 0; g < left; ++g) {
    const uint at = blocks * groups + g;
    float values[chunks];
    float sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < chunks; ++i) {
      const float value = float(x[(at * chunks + i) * 32]);
      sum += value;
      values[i] = value * Packed<bits>::placed_factor(g * chunks + i);
    }
#pragma unroll
    for (uint r = 0; r < rows_of_simdgroup; ++r) {
      const uint word = row[r].words[blocks * 32 + lane];
      totals[r] = with_group<Kind, bits, chunks>(totals[r], word, g * chunks, values, sum,
                                                 row[r].scales + at, row[r].offsets + at);
    }
  }

  // Lane r keeps the sum of row r.
  float mine = 0.0f;
#pragma unroll
  for (uint r = 0; r < rows_of_simdgroup; ++r) {
    const float total = simd_sum(totals[r]);
    if (lane == r) mine = total;
  }
  if (split > 1) {
    if (lane < rows_of_simdgroup) parts[simd * rows_of_simdgroup + lane] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (part != 0) return;
    for (uint i = 1; i < split; ++i)
      if (lane < rows_of_simdgroup) mine += parts[(simd + i) * rows_of_simdgroup + lane];
  }
  if (lane < rows_of_simdgroup && first + lane < rows) {
    if (numbers.has_bias) mine += float(bias[first + lane]);
    y[group.y * rows + first + lane] = T(activated(numbers.activation, mine));
  }
}

// --- the gradient of x -------------------------------------------------------------------------

// The simdgroups of a threadgroup share the rows of a block, and add up what they have at the end.
template <typename T, typename S, typename Kind, uint bits>
[[kernel]] void matvec_backward(
    device const T* gradient [[buffer(0)]], device const uint* words [[buffer(1)]],
    device const S* scales [[buffer(2)]],
    device const typename Kind::template Offset<S>* offsets [[buffer(3)]],
    device T* result [[buffer(4)]], constant Numbers& numbers [[buffer(5)]],
    uint2 group [[threadgroup_position_in_grid]], uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  constexpr uint chunks = Packed<bits>::chunks;
  const uint rows = numbers.rows, columns = numbers.columns, group_size = numbers.group_size;
  threadgroup float parts[most_simdgroups * Packed<bits>::columns];
  const uint first = group.x * Packed<bits>::columns;
  const uint used = min(chunks, (columns - first) / 32);
  const uint groups = columns / group_size;
  words += group.x * 32 + lane;
  gradient += group.y * numbers.stride;

  float totals[chunks] = {};
  for (uint row = simd; row < rows; row += simdgroups) {
    const float dy = float(gradient[row]);
    const uint word = Packed<bits>::turned(words[row * Packed<bits>::words(columns)]);
#pragma unroll
    for (uint i = 0; i < chunks; ++i) {
      // A chunk past the end of the row is taken for the last one, and its result dropped.
      const uint index = row * groups + (first + min(i, used - 1) * 32) / group_size;
      const float scale = float(scales[index]);
      totals[i] = fma(dy * scale, Packed<bits>::signed_code(word, i), totals[i]);
      if (Kind::shifted) {
        totals[i] = fma(dy, Kind::template shift<bits>(scale, offsets + index), totals[i]);
      }
    }
  }
#pragma unroll
  for (uint i = 0; i < chunks; ++i) parts[(simd * chunks + i) * 32 + lane] = totals[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = simd; i < used; i += simdgroups) {
    float total = 0.0f;
    for (uint other = 0; other < simdgroups; ++other) {
      total += parts[(other * chunks + i) * 32 + lane];
    }
    result[group.y * columns + first + i * 32 + lane] = T(total);
  }
}

// --- instances: matvec[_wide]_<kind>_<bits>_<chunks of a group>_<activations>_<scales> -----------

#define MATVEC_INSTANCE(Kind, name, T, S, bits, chunks, word, wide)                 \
  template [[host_name(word #name "_" #bits "_" #chunks "_" #T "_" #S)]] [[kernel]] \
  decltype(matvec<T, S, Kind, bits, chunks, wide>) matvec<T, S, Kind, bits, chunks, wide>;
#define MATVEC(Kind, name, T, S, bits, chunks)                      \
  MATVEC_INSTANCE(Kind, name, T, S, bits, chunks, "matvec_", false) \
  MATVEC_INSTANCE(Kind, name, T, S, bits, chunks, "matvec_wide_", true)
#define MATVEC_OF_EACH_GROUP(Kind, name, T, S) \
  MATVEC(Kind, name, T, S, 4, 1)               \
  MATVEC(Kind, name, T, S, 4, 2)               \
  MATVEC(Kind, name, T, S, 4, 4)               \
  MATVEC(Kind, name, T, S, 8, 1)               \
  MATVEC(Kind, name, T, S, 8, 2)               \
  MATVEC(Kind, name, T, S, 8, 4)

FOR_EACH_KIND(MATVEC_OF_EACH_GROUP)

#define MATVEC_BACKWARD(Kind, name, T, S, bits)                                       \
  template [[host_name("matvec_backward_" #name "_" #bits "_" #T "_" #S)]] [[kernel]] \
  decltype(matvec_backward<T, S, Kind, bits>) matvec_backward<T, S, Kind, bits>;
#define MATVEC_BACKWARD_OF_EACH_WIDTH(Kind, name, T, S) \
  MATVEC_BACKWARD(Kind, name, T, S, 4)                  \
  MATVEC_BACKWARD(Kind, name, T, S, 8)

FOR_EACH_KIND(MATVEC_BACKWARD_OF_EACH_WIDTH)
