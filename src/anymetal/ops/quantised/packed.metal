// Activations times weights in the blocks that files of other libraries hold, as they lie there:
// y = x W^T + bias, and the gradient of x, dx = dy W.
//
//   q4_K  ggml's 256 weights in 144 bytes: two halves, twelve bytes with scales and least weights
//   of
//         eight groups, six bits each, and codes of four bits; 32 bytes are two groups of 32
//   q6_K  ggml's 256 weights in 210 bytes: codes' low four bits, their high two, sixteen scales of
//         groups of 16, and a half
//   nf4   bitsandbytes': codes of four bits, the first in the high half of a byte, look up a table;
//         the largest weight of each block is a float beside them
//
// A step is what a simdgroup takes of a row at once. A lane has `share` weights of it, those of
// q4_K and q6_K 32 apart, so that lanes read neighbouring bytes and neighbouring activations; a
// lane of nf4 has the two of one byte, and activations are exchanged between lanes once for all
// rows.
#include "shared/weight_tiles.h"

constant constexpr uint rows_of_simdgroup = 4;
constant constexpr uint most_row_simdgroups = 16;

// Blocks of a matrix; `scales` is not read but by nf4.
struct Blocks {
  device const uchar* bytes;
  device const float* scales;
  uint rows;
  uint columns;
  uint shift;  // weights of a block as a power of two
};

inline float half_at(device const uchar* bytes) {
  return float(as_type<half>(ushort(bytes[0] | bytes[1] << 8)));
}

// --- ggml's
// ----------------------------------------------------------------------------------------

// What q4_K and q6_K have in common: steps of 256 weights, chunks of 32 in the order of the row.
template <typename Layout>
struct Superblocks {
  static constexpr constant uint step = 256;
  static constexpr constant uint share = 8;

  static uint column(uint i, uint lane) { return i * 32 + lane; }
  static uint whole_steps(uint columns) { return columns / step; }
  static bool has_more(uint) { return false; }
  static float look_up(uint) { return 0.0f; }

  template <bool whole, typename T>
  static void activations(device const T* x, uint lane, thread float (&values)[share]) {
#pragma unroll
    for (uint i = 0; i < share; ++i) values[i] = float(x[i * 32 + lane]);
  }

  static device const uchar* block(Blocks blocks, uint row, uint number) {
    return blocks.bytes + (row * whole_steps(blocks.columns) + number) * Layout::size;
  }

  template <bool whole>
  static void weights(Blocks blocks, uint row, uint number, uint lane, float,
                      thread float (&values)[share]) {
    Layout::unpack(block(blocks, row, number), lane, values);
  }

  static float weight(Blocks blocks, uint row, uint column, uint lane, float) {
    return Layout::value(block(blocks, row, column / step), column % step / 32, lane);
  }
};

struct Q4KBlock {
  static constexpr constant uint size = 144;

  // The scale (0) or the least weight (4) of group g: six bits, the last four groups' in two parts.
  static float six_bits(device const uchar* bytes, uint g, uint which) {
    const uint low = bytes[4 + which + g % 4];
    if (g < 4) return float(low & 63);
    const uint rest = bytes[12 + g % 4];
    return float((which == 0 ? rest & 15 : rest >> 4) | (low >> 6 << 4));
  }

  static float value(device const uchar* bytes, uint g, uint lane) {
    const uint code = uint(bytes[16 + g / 2 * 32 + lane]) >> (g % 2 * 4) & 15;
    const float least = half_at(bytes + 2) * six_bits(bytes, g, 4);
    return half_at(bytes) * six_bits(bytes, g, 0) * float(code) - least;
  }

  static void unpack(device const uchar* bytes, uint lane, thread float (&values)[8]) {
    const float scale = half_at(bytes), least = half_at(bytes + 2);
#pragma unroll
    for (uint pair = 0; pair < 4; ++pair) {
      const uint codes = bytes[16 + pair * 32 + lane];
#pragma unroll
      for (uint i = 0; i < 2; ++i) {
        const uint g = pair * 2 + i;
        values[g] = fma(scale * six_bits(bytes, g, 0), float(codes >> (i * 4) & 15),
                        -least * six_bits(bytes, g, 4));
      }
    }
  }
};

struct Q6KBlock {
  static constexpr constant uint size = 210;

  // Chunk g has its low bits in one of two rows of 32 bytes of its half, in one half of each byte.
  static float value(device const uchar* bytes, uint g, uint lane) {
    const uint part = g / 4, k = g % 4;
    const uint low = uint(bytes[part * 64 + k % 2 * 32 + lane]) >> (k / 2 * 4) & 15;
    const uint high = uint(bytes[128 + part * 32 + lane]) >> (k * 2) & 3;
    return scale(bytes, g, lane) * (float(low | high << 4) - 32.0f);
  }

  // Groups are halves of chunks.
  static float scale(device const uchar* bytes, uint g, uint lane) {
    const float first = float(char(bytes[192 + g * 2])), second = float(char(bytes[193 + g * 2]));
    return half_at(bytes + 208) * (lane < 16 ? first : second);
  }

  static void unpack(device const uchar* bytes, uint lane, thread float (&values)[8]) {
#pragma unroll
    for (uint part = 0; part < 2; ++part) {
      const uint first = bytes[part * 64 + lane], second = bytes[part * 64 + 32 + lane];
      const uint high = bytes[128 + part * 32 + lane];
#pragma unroll
      for (uint k = 0; k < 4; ++k) {
        const uint low = (k % 2 == 0 ? first : second) >> (k / 2 * 4) & 15;
        const uint code = low | (high >> (k * 2) & 3) << 4;
        values[part * 4 + k] = scale(bytes, part * 4 + k, lane) * (float(code) - 32.0f);
      }
    }
  }
};

// --- bitsandbytes'
// ---------------------------------------------------------------------------------

constant float normal_float[16] = {-1.0f,
                                   -0.6961928009986877f,
                                   -0.5250730514526367f,
                                   -0.39491748809814453f,
                                   -0.28444138169288635f,
                                   -0.18477343022823334f,
                                   -0.09105003625154495f,
                                   0.0f,
                                   0.07958029955625534f,
                                   0.16093020141124725f,
                                   0.24611230194568634f,
                                   0.33791524171829224f,
                                   0.44070982933044434f,
                                   0.5626170039176941f,
                                   0.7229568362236023f,
                                   1.0f};

// Rows are whole chunks of 32, and so are blocks: a chunk is in one block.
struct NF4 {
  static constexpr constant uint step = 64;
  static constexpr constant uint share = 2;

  static uint column(uint i, uint lane) { return lane * 2 + i; }
  static uint whole_steps(uint columns) { return columns / step; }
  static bool has_more(uint columns) { return columns % step != 0; }  // half a step
  // A lane keeps a value of the table: lanes ask each other for those of their codes.
  static float look_up(uint lane) { return normal_float[lane % 16]; }

  // Zeros for the second half of a step that is not whole.
  template <bool whole, typename T>
  static void activations(device const T* x, uint lane, thread float (&values)[share]) {
    const float first = float(x[lane]), second = whole ? float(x[32 + lane]) : 0.0f;
#pragma unroll
    for (uint i = 0; i < share; ++i) {
      const ushort from = ushort(column(i, lane) % 32);
      const float low = simd_shuffle(first, from), high = simd_shuffle(second, from);
      values[i] = lane < 16 ? low : high;
    }
  }

  template <bool whole>
  static void weights(Blocks blocks, uint row, uint number, uint lane, float table,
                      thread float (&values)[share]) {
    const uint start = row * blocks.columns + number * step;
    device const uchar* bytes = blocks.bytes + start / 2;
    float largest = blocks.scales[start >> blocks.shift];
    if (whole) {
      const float second = blocks.scales[(start + 32) >> blocks.shift];
      largest = lane < 16 ? largest : second;
    }
    const uint byte = bytes[whole ? lane : lane % 16];
    values[0] = simd_shuffle(table, ushort(byte >> 4)) * largest;
    values[1] = simd_shuffle(table, ushort(byte & 15)) * largest;
  }

  static float weight(Blocks blocks, uint row, uint column, uint lane, float table) {
    const uint start = row * blocks.columns + column;
    const uint byte = blocks.bytes[(start + lane) / 2];
    const uint code = lane % 2 == 0 ? byte >> 4 : byte & 15;
    return simd_shuffle(table, ushort(code)) * blocks.scales[start >> blocks.shift];
  }
};

// --- a few rows
// ------------------------------------------------------------------------------------

// One step of `rows_of_simdgroup` dots. Past the last row, the last one is read again, and its
// result dropped.
template <bool whole, typename Format, typename T>
inline void add_step(thread float (&totals)[rows_of_simdgroup], device const T* x, Blocks blocks,
                     uint first, uint number, uint lane, float table) {
  float values[Format::share];
  Format::template activations<whole>(x + number * Format::step, lane, values);
#pragma unroll
  for (uint r = 0; r < rows_of_simdgroup; ++r) {
    float weights[Format::share];
    const uint row = min(first + r, blocks.rows - 1);
    Format::template weights<whole>(blocks, row, number, lane, table, weights);
#pragma unroll
    for (uint i = 0; i < Format::share; ++i) totals[r] = fma(weights[i], values[i], totals[r]);
  }
}

template <typename T, typename Format>
[[kernel]] void packed_matvec(
    device const T* x [[buffer(0)]], device const uchar* bytes [[buffer(1)]],
    device const float* scales [[buffer(2)]], device const T* bias [[buffer(3)]],
    device T* y [[buffer(4)]], constant Numbers& numbers [[buffer(5)]],
    uint2 group [[threadgroup_position_in_grid]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const Blocks blocks = {bytes, scales, numbers.rows, numbers.columns, ctz(numbers.group_size)};
  const uint first = (group.x * simdgroups + simd) * rows_of_simdgroup;
  const float table = Format::look_up(lane);
  x += group.y * numbers.stride;

  float totals[rows_of_simdgroup] = {};
  const uint steps = Format::whole_steps(blocks.columns);
  for (uint number = 0; number < steps; ++number) {
    add_step<true, Format>(totals, x, blocks, first, number, lane, table);
  }
  if (Format::has_more(blocks.columns)) {
    add_step<false, Format>(totals, x, blocks, first, steps, lane, table);
  }

  // Lane r keeps the sum of row r.
  float mine = 0.0f;
#pragma unroll
  for (uint r = 0; r < rows_of_simdgroup; ++r) {
    const float total = simd_sum(totals[r]);
    if (lane == r) mine = total;
  }
  if (lane < rows_of_simdgroup && first + lane < blocks.rows) {
    if (numbers.has_bias) mine += float(bias[first + lane]);
    y[group.y * blocks.rows + first + lane] = T(mine);
  }
}

// One step of every row that is this simdgroup's, times the row's gradient.
template <bool whole, typename Format, typename T>
inline void add_rows(thread float (&totals)[Format::share], device const T* gradient, Blocks blocks,
                     uint number, uint simd, uint simdgroups, uint lane, float table) {
  for (uint row = simd; row < blocks.rows; row += simdgroups) {
    const float dy = float(gradient[row]);
    float weights[Format::share];
    Format::template weights<whole>(blocks, row, number, lane, table, weights);
#pragma unroll
    for (uint i = 0; i < Format::share; ++i) totals[i] = fma(dy, weights[i], totals[i]);
  }
}

// The simdgroups of a threadgroup share the rows of a step, and add up what they have at the end.
template <typename T, typename Format>
[[kernel]] void packed_matvec_backward(
    device const T* gradient [[buffer(0)]], device const uchar* bytes [[buffer(1)]],
    device const float* scales [[buffer(2)]], device T* result [[buffer(3)]],
    constant Numbers& numbers [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float parts[most_row_simdgroups * Format::step];
  const Blocks blocks = {bytes, scales, numbers.rows, numbers.columns, ctz(numbers.group_size)};
  const float table = Format::look_up(lane);
  gradient += group.y * numbers.stride;

  float totals[Format::share] = {};
  const uint first = group.x * Format::step;
  const uint used = min(Format::step, blocks.columns - first);
  if (used == Format::step) {
    add_rows<true, Format>(totals, gradient, blocks, group.x, simd, simdgroups, lane, table);
  } else {
    add_rows<false, Format>(totals, gradient, blocks, group.x, simd, simdgroups, lane, table);
  }
#pragma unroll
  for (uint i = 0; i < Format::share; ++i) {
    parts[simd * Format::step + Format::column(i, lane)] = totals[i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = simd * 32 + lane; i < used; i += simdgroups * 32) {
    float total = 0.0f;
    for (uint other = 0; other < simdgroups; ++other) total += parts[other * Format::step + i];
    result[group.y * blocks.columns + first + i] = T(total);
  }
}

// --- many rows
// -------------------------------------------------------------------------------------

template <typename Format>
struct Unpacked {
  Blocks blocks;
  uint rows;
  uint columns;
  float table;

  void load(threadgroup float* tile, uint from, uint at, uint simd, uint lane,
            uint simdgroups) const {
    for (uint row = simd; row < 32; row += simdgroups) {
      float value = 0.0f;
      if (from + row < rows) value = Format::weight(blocks, from + row, at, lane, table);
      tile[row * row_floats + lane] = value;
    }
  }
};

template <typename T, typename Format, bool transposed>
[[kernel]] void packed_matmul(
    device const T* x [[buffer(0)]], device const uchar* bytes [[buffer(1)]],
    device const float* scales [[buffer(2)]], device const T* bias [[buffer(3)]],
    device T* y [[buffer(4)]], constant Numbers& numbers [[buffer(5)]],
    uint2 group [[threadgroup_position_in_grid]], uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float left_tile[most_simdgroups * strip_rows * row_floats];
  threadgroup float right_tile[32 * row_floats];
  const Blocks blocks = {bytes, scales, numbers.rows, numbers.columns, ctz(numbers.group_size)};
  const Unpacked<Format> weights = {blocks, blocks.rows, blocks.columns, Format::look_up(lane)};
  multiply_tiles<T, transposed>(x, weights, bias, y, numbers, left_tile, right_tile, group, simd,
                                lane, simdgroups);
}

// --- instances: packed_matvec_<format>_<activations>, ...
// -------------------------------------------

#define PACKED(Format, name, T)                                                         \
  template [[host_name(                                                                 \
      "packed_matvec_" #name                                                            \
      "_" #T)]] [[kernel]] decltype(packed_matvec<T, Format>) packed_matvec<T, Format>; \
  template [[host_name("packed_matvec_backward_" #name "_" #T)]] [[kernel]]             \
  decltype(packed_matvec_backward<T, Format>) packed_matvec_backward<T, Format>;        \
  template [[host_name("packed_matmul_" #name "_" #T)]] [[kernel]]                      \
  decltype(packed_matmul<T, Format, true>) packed_matmul<T, Format, true>;              \
  template [[host_name("packed_matmul_backward_" #name "_" #T)]] [[kernel]]             \
  decltype(packed_matmul<T, Format, false>) packed_matmul<T, Format, false>;
#define PACKED_OF_EACH_DTYPE(Format, name) \
  PACKED(Format, name, float) PACKED(Format, name, half) PACKED(Format, name, bfloat)

PACKED_OF_EACH_DTYPE(Superblocks<Q4KBlock>, q4_K)
PACKED_OF_EACH_DTYPE(Superblocks<Q6KBlock>, q6_K)
PACKED_OF_EACH_DTYPE(NF4, nf4)
