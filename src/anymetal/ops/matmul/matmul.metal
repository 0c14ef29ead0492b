// C = f(alpha A B + beta bias) + residual, sums in float.
//
// A is m x k, B is k x n. `tiles` multiplies tiles with simdgroup matrices; `dots` and `columns`
// are for few rows, where every element of B is used a few times only. The third coordinate of the
// grid is the batch.
#include <metal_simdgroup_matrix>

#include "shared/product.h"
#include "shared/vectors.h"

constant constexpr uint lanes = 32;

// --- tiles in threadgroup memory -----------------------------------------------------------------

template <typename T, uint width>
struct Elements {
  using type = vec<T, width>;
  static type zero() { return type(T(0.0f)); }
};
template <typename T>
struct Elements<T, 1> {
  using type = T;
  static T zero() { return T(0.0f); }
};
// Eight elements of 16 bits.
template <typename T>
struct Elements<T, 8> {
  using type = uint4;
  static uint4 zero() { return uint4(0); }
};

// One operand's tile as it lies in memory: `rows` rows of `columns` neighbouring elements. k runs
// along a row (k_in_row) or from row to row. The threads fetch the next tile into registers while
// the simdgroups multiply the one before.
//
// Tiles of eight elements an access are dense: without room between rows two of them fit. Their
// rows share banks, unless the machine spreads them (docs/cuda.md), which they are meant for.
//
// Rows and columns of C past its end are computed from the nearest ones inside and never written,
// so only the first step along k, which takes what is left over, must know where the operand ends.
template <typename T, uint rows, uint columns, bool k_in_row, uint threads, uint width>
struct Tile {
  using V = typename Elements<T, width>::type;
  static constexpr constant bool dense = width == 8;
  static constexpr constant uint stride = columns + (dense ? 0 : 16 / sizeof(T));
  static constexpr constant uint elements = rows * stride;
  static constexpr constant uint count = rows * columns / (threads * width);
  static_assert(count * threads * width == rows * columns, "a tile is shared out evenly");

  V held[count];

  // Where an element stands in threadgroup memory.
  static uint at(uint row, uint column) { return row * stride + column; }

  // Of lanes that lie as matrices want them, 0 to 3 access memory with 8 to 11, and 4 to 7 with 12
  // to 15. In dense tiles they take neighbours.
  static uint order(uint i, uint thread_index) {
    const uint swapped = (thread_index & ~12u) | (thread_index & 4) << 1 | (thread_index & 8) >> 1;
    return (i * threads + (dense ? swapped : thread_index)) * width;
  }
  static uint row_of(uint i, uint thread_index) { return order(i, thread_index) / columns; }
  static uint column_of(uint i, uint thread_index) { return order(i, thread_index) % columns; }

  // `last` is the last place inside in the direction that is not k, where a fetch may begin.
  static long place(uint i, uint thread_index, long next_row, uint last) {
    const uint row = row_of(i, thread_index), column = column_of(i, thread_index);
    return k_in_row ? min(row, last) * next_row + column : row * next_row + min(column, last);
  }

  void fetch(device const T* from, long next_row, uint last, uint thread_index) thread {
#pragma unroll
    for (uint i = 0; i < count; ++i)
      held[i] = *reinterpret_cast<device const V*>(from + place(i, thread_index, next_row, last));
  }

  // Only `depth` of k are there: zeros behind them.
  void fetch_part(device const T* from, long next_row, uint last, uint depth,
                  uint thread_index) thread {
#pragma unroll
    for (uint i = 0; i < count; ++i) {
      const bool inside = (k_in_row ? column_of(i, thread_index) : row_of(i, thread_index)) < depth;
      const long at = inside ? place(i, thread_index, next_row, last) : 0;
      const V value = *reinterpret_cast<device const V*>(from + at);
      held[i] = inside ? value : Elements<T, width>::zero();
    }
  }

  void put(threadgroup T* tile, uint thread_index) const thread {
#pragma unroll
    for (uint i = 0; i < count; ++i) {
      threadgroup T* to = tile + order(0, thread_index) + i * threads * width;
      if (!dense) to = tile + at(row_of(i, thread_index), column_of(i, thread_index));
      *reinterpret_cast<threadgroup V*>(to) = held[i];
    }
  }
};

// Both operands where a tile of C needs them, with the tiles that are on their way.
template <typename T, typename ATile, typename BTile, bool a_transposed, bool b_transposed>
struct Operands {
  device const T* a;
  device const T* b;
  long a_next, b_next;  // from one row in memory to the next
  uint a_last, b_last;
  ATile next_a;
  BTile next_b;

  Operands(device const T* a_all, device const T* b_all, constant Numbers& numbers,
           thread const Starts& starts, uint row, uint column, uint width)
      : a_next(a_transposed ? numbers.a.column : numbers.a.row),
        b_next(b_transposed ? numbers.b.column : numbers.b.row),
        a_last(numbers.m - row - (a_transposed ? width : 1)),
        b_last(numbers.n - column - (b_transposed ? 1 : width)) {
    a = a_all + starts.a + (a_transposed ? long(row) : row * a_next);
    b = b_all + starts.b + (b_transposed ? column * b_next : long(column));
  }

  void fetch_first(uint depth, uint thread_index) thread {
    next_a.fetch_part(a, a_next, a_last, depth, thread_index);
    next_b.fetch_part(b, b_next, b_last, depth, thread_index);
  }

  void fetch(uint k, uint thread_index) thread {
    next_a.fetch(a + (a_transposed ? k * a_next : long(k)), a_next, a_last, thread_index);
    next_b.fetch(b + (b_transposed ? long(k) : k * b_next), b_next, b_last, thread_index);
  }

  void put(threadgroup T* a_tile, threadgroup T* b_tile, uint thread_index) const thread {
    next_a.put(a_tile, thread_index);
    next_b.put(b_tile, thread_index);
  }
};

// The part of a tile of C that one simdgroup computes: high x wide matrices of 8 x 8.
//
// A float's sum over a long k would lose digits: it is made of sums over parts of k. The rounding
// of the narrower types hides that.
template <typename T, uint high, uint wide>
struct Part {
  static constexpr constant bool in_parts = sizeof(T) == sizeof(float);
  simdgroup_float8x8 sums[high][wide];
  simdgroup_float8x8 totals[in_parts ? high : 1][in_parts ? wide : 1];

  Part() {
    clear(sums);
    clear(totals);
  }

  template <uint n, uint m>
  static void clear(thread simdgroup_float8x8 (&matrices)[n][m]) {
#pragma unroll
    for (uint i = 0; i < n; ++i)
#pragma unroll
      for (uint j = 0; j < m; ++j) matrices[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }

  // The sums so far go to the totals.
  void keep() thread {
    if constexpr (in_parts) {
#pragma unroll
      for (uint i = 0; i < high; ++i)
#pragma unroll
        for (uint j = 0; j < wide; ++j)
          totals[i][j].thread_elements() += sums[i][j].thread_elements();
      clear(sums);
    }
  }

  simdgroup_float8x8 result(uint i, uint j) const thread {
    if constexpr (in_parts) {
      return totals[i][j];
    } else {
      return sums[i][j];
    }
  }

  // Adds the product of `depth` columns of A and rows of B.
  template <typename ATile, typename BTile, bool a_transposed, bool b_transposed, uint depth>
  void multiply(threadgroup const T* a, threadgroup const T* b) thread {
#pragma unroll
    for (uint k = 0; k < depth; k += 8) {
      simdgroup_matrix<T, 8, 8> left[high], right[wide];
#pragma unroll
      for (uint i = 0; i < high; ++i)
        simdgroup_load(left[i], a + (a_transposed ? ATile::at(k, i * 8) : ATile::at(i * 8, k)),
                       ATile::stride, ulong2(0), a_transposed);
#pragma unroll
      for (uint j = 0; j < wide; ++j)
        simdgroup_load(right[j], b + (b_transposed ? BTile::at(j * 8, k) : BTile::at(k, j * 8)),
                       BTile::stride, ulong2(0), b_transposed);
#pragma unroll
      for (uint i = 0; i < high; ++i)
#pragma unroll
        for (uint j = 0; j < wide; ++j)
          simdgroup_multiply_accumulate(sums[i][j], left[i], right[j], sums[i][j]);
    }
  }

  // Writes what lies inside C, `at_once` matrices below each other at a time through `staged`,
  // which is the simdgroup's own; a lane takes one result, or four neighbouring ones.
  template <uint at_once, typename V>
  void write(threadgroup float* staged, thread const Results<T>& results, constant Numbers& numbers,
             uint row, uint column, uint lane) const thread {
    constexpr uint columns = wide * 8, width = sizeof(V) / sizeof(float);
#pragma unroll
    for (uint i = 0; i < high; i += at_once) {
#pragma unroll
      for (uint j = 0; j < at_once * wide; ++j)
        simdgroup_store(result(i + j / wide, j % wide),
                        staged + j / wide * 8 * columns + j % wide * 8, columns);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      for (uint at = lane * width; at < at_once * 8 * columns; at += lanes * width) {
        const uint r = row + i * 8 + at / columns, c = column + at % columns;
        if (r < numbers.m && c < numbers.n)
          results.write(numbers, r, c, *reinterpret_cast<threadgroup const V*>(staged + at));
      }
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
};

// How many of a part's `high` rows of matrices are staged at once, where `room` fit: all of them,
// or halves and quarters.
constexpr uint results_at_once(uint high, uint room) {
  return high == 1 || high <= room ? high : results_at_once(high / 2, room);
}

// A threadgroup a tile of C, which its simdgroups divide into simd_rows x simd_columns parts.
// a_transposed: A is stored column-major; b_transposed the same for B.
template <typename T, uint tile_rows, uint tile_columns, uint depth, uint simd_rows,
          uint simd_columns, bool a_transposed, bool b_transposed, uint width>
[[kernel]] void tiles(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                      device T* c [[buffer(2)]], device const T* bias [[buffer(3)]],
                      device const T* residual [[buffer(4)]],
                      constant Numbers& numbers [[buffer(5)]],
                      uint3 group [[threadgroup_position_in_grid]],
                      uint in_group [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simd [[simdgroup_index_in_threadgroup]]) {
  constexpr uint threads = simd_rows * simd_columns * lanes;
  constexpr uint part_rows = tile_rows / simd_rows, part_columns = tile_columns / simd_columns;
  using ATile = Tile<T, a_transposed ? depth : tile_rows, a_transposed ? tile_rows : depth,
                     !a_transposed, threads, width>;
  using BTile = Tile<T, b_transposed ? tile_columns : depth, b_transposed ? depth : tile_columns,
                     b_transposed, threads, width>;
  // Tiles first, then results on their way out. Two tiles of each operand where they fit: then one
  // is filled while the other is used.
  constexpr uint pair_bytes = (ATile::elements + BTile::elements) * sizeof(T);
  constexpr uint buffers = 2 * pair_bytes <= 32768 ? 2 : 1;
  static_assert(!ATile::dense || buffers == 2, "dense tiles are put while others are multiplied");
  constexpr uint tile_bytes = buffers * pair_bytes;
  constexpr uint row_bytes = simd_rows * simd_columns * 8 * part_columns * sizeof(float);
  constexpr uint rows_at_once = results_at_once(part_rows / 8, tile_bytes / row_bytes);
  constexpr uint result_bytes = rows_at_once * row_bytes;
  threadgroup uint4 memory[(tile_bytes > result_bytes ? tile_bytes : result_bytes) / sizeof(uint4)];
  threadgroup T* a_tiles = reinterpret_cast<threadgroup T*>(memory);
  threadgroup T* b_tiles = a_tiles + buffers * ATile::elements;

  const Starts starts(numbers, group.z);
  const uint row = group.y * tile_rows, column = group.x * tile_columns;
  const uint part_row = simd / simd_columns * part_rows;
  const uint part_column = simd % simd_columns * part_columns;
  Part<T, part_rows / 8, part_columns / 8> part;

  if (numbers.k > 0) {
    threadgroup const T* a_part =
        a_tiles + (a_transposed ? ATile::at(0, part_row) : ATile::at(part_row, 0));
    threadgroup const T* b_part =
        b_tiles + (b_transposed ? BTile::at(part_column, 0) : BTile::at(0, part_column));
    Operands<T, ATile, BTile, a_transposed, b_transposed> operands(a, b, numbers, starts, row,
                                                                   column, width);

    const uint first = (numbers.k - 1) % depth + 1;
    operands.fetch_first(first, in_group);
    operands.put(a_tiles, b_tiles, in_group);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint current = 0;
    for (uint k = first; k < numbers.k;) {
      const uint end = min(numbers.k, k + numbers.at_once);
      for (; k < end; k += depth) {
        const uint other = (current + 1) % buffers;
        threadgroup T* a_other = a_tiles + other * ATile::elements;
        threadgroup T* b_other = b_tiles + other * BTile::elements;
        operands.fetch(k, in_group);
        if (ATile::dense) operands.put(a_other, b_other, in_group);
        part.template multiply<ATile, BTile, a_transposed, b_transposed, depth>(
            a_part + current * ATile::elements, b_part + current * BTile::elements);
        if (buffers == 1) threadgroup_barrier(mem_flags::mem_threadgroup);
        if (!ATile::dense) operands.put(a_other, b_other, in_group);
        current = other;
        threadgroup_barrier(mem_flags::mem_threadgroup);
      }
      part.keep();
    }
    part.template multiply<ATile, BTile, a_transposed, b_transposed, depth>(
        a_part + current * ATile::elements, b_part + current * BTile::elements);
    part.keep();
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup float* staged = reinterpret_cast<threadgroup float*>(memory);
  using V = typename Width<width == 1 ? 1 : 4>::type;
  part.template write<rows_at_once, V>(staged + simd * rows_at_once * 8 * part_columns,
                                       Results<T>(c, bias, residual, starts), numbers,
                                       row + part_row, column + part_column, lane);
}

// --- few rows ------------------------------------------------------------------------------------

// The rows of A past its end are the last one again; nobody writes what comes of them.
template <uint rows>
inline uint row_inside(uint row, constant Numbers& numbers) {
  return rows == 1 ? 0 : min(row, numbers.m - 1);
}

constant constexpr uint columns_at_once = 4;

// What a simdgroup of `dots` adds up: rows x 4 sums, in each lane those of its own elements of k.
template <typename T, uint rows, uint width>
struct Dots {
  using W = Width<width>;
  float sums[rows][columns_at_once];
  device const T* a;
  device const T* b;
  Strides a_strides;
  Strides b_strides;

  Dots(device const T* a_all, device const T* b_all, thread const Starts& starts,
       constant Numbers& numbers)
      : a(a_all + starts.a), b(b_all + starts.b), a_strides(numbers.a), b_strides(numbers.b) {
    for (uint i = 0; i < rows; ++i)
      for (uint j = 0; j < columns_at_once; ++j) sums[i][j] = 0.0f;
  }

  void add(uint k, constant Numbers& numbers, uint column) thread {
    typename W::type right[columns_at_once];
#pragma unroll
    for (uint j = 0; j < columns_at_once; ++j)
      right[j] = W::load(b + min(column + j, numbers.n - 1) * b_strides.column +
                         (width == 1 ? k * b_strides.row : long(k)));
#pragma unroll
    for (uint i = 0; i < rows; ++i) {
      const auto left = W::load(a + row_inside<rows>(i, numbers) * a_strides.row +
                                (width == 1 ? k * a_strides.column : long(k)));
#pragma unroll
      for (uint j = 0; j < columns_at_once; ++j) sums[i][j] += sum_of(left * right[j]);
    }
  }
};

// Lanes take neighbouring elements of k: best where B lies in memory column by column. `split`
// simdgroups share four columns of C, each a part of k.
template <typename T, uint rows, uint width>
[[kernel]] void dots(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                     device T* c [[buffer(2)]], device const T* bias [[buffer(3)]],
                     device const T* residual [[buffer(4)]],
                     constant Numbers& numbers [[buffer(5)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]],
                     uint simds [[simdgroups_per_threadgroup]]) {
  constexpr uint results_at_once = rows * columns_at_once;
  threadgroup float partial[32 * results_at_once];
  const Starts starts(numbers, group.z);
  const uint column = (group.x * (simds / numbers.split) + simd / numbers.split) * columns_at_once;
  const uint step = lanes * width;
  Dots<T, rows, width> own(a, b, starts, numbers);
  uint k = simd % numbers.split * step;
  for (; k + step <= numbers.k; k += numbers.split * step)
    own.add(k + lane * width, numbers, column);
  if (k + lane * width < numbers.k) own.add(k + lane * width, numbers, column);

  // Lane i keeps sum i: the results are written side by side.
  float mine = 0.0f;
#pragma unroll
  for (uint i = 0; i < results_at_once; ++i) {
    const float sum = simd_sum(own.sums[i / columns_at_once][i % columns_at_once]);
    mine = lane == i ? sum : mine;
  }
  if (numbers.split > 1) {
    if (lane < results_at_once) partial[simd * results_at_once + lane] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd % numbers.split != 0) return;
    for (uint i = 1; i < numbers.split; ++i)
      if (lane < results_at_once) mine += partial[(simd + i) * results_at_once + lane];
  }
  const uint i = lane / columns_at_once, j = column + lane % columns_at_once;
  if (lane < results_at_once && i < numbers.m && j < numbers.n)
    Results<T>(c, bias, residual, starts).write(numbers, i, j, mine);
}

// Four results one after the other: the code for what becomes of four at once would stand in the
// kernel for every row.
template <typename T>
inline void write_columns(thread const Results<T>& results, constant Numbers& numbers, uint row,
                          uint column, float sum) {
  results.write(numbers, row, column, sum);
}
template <typename T>
inline void write_columns(thread const Results<T>& results, constant Numbers& numbers, uint row,
                          uint column, float4 sums) {
  for (uint i = 0; i < 4; ++i) results.write(numbers, row, column + i, sums[i]);
}

// B lies in memory row by row: a lane takes `width` neighbouring columns, a simdgroup some of the
// rows of B; then the simdgroups add their sums.
template <typename T, uint rows, uint width>
[[kernel]] void columns(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                        device T* c [[buffer(2)]], device const T* bias [[buffer(3)]],
                        device const T* residual [[buffer(4)]],
                        constant Numbers& numbers [[buffer(5)]],
                        uint3 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint simds [[simdgroups_per_threadgroup]]) {
  using W = Width<width>;
  using V = typename W::type;
  threadgroup V partial[32 * lanes];
  const Starts starts(numbers, group.z);
  const uint column = (group.x * lanes + lane) * width;
  a += starts.a;
  b += starts.b + min(column, numbers.n - width);
  V totals[rows] = {};
  for (uint k = simd; k < numbers.k;) {
    V sums[rows] = {};
    const uint end = min(numbers.k, k + simds * numbers.at_once);
    for (; k < end; k += simds) {
      const V right = W::load(b + k * numbers.b.row);
#pragma unroll
      for (uint i = 0; i < rows; ++i) {
        const uint row = row_inside<rows>(i, numbers);
        sums[i] += float(a[row * numbers.a.row + k * numbers.a.column]) * right;
      }
    }
#pragma unroll
    for (uint i = 0; i < rows; ++i) totals[i] += sums[i];
  }
  const Results<T> results(c, bias, residual, starts);
#pragma unroll
  for (uint i = 0; i < rows; ++i) {
    partial[simd * lanes + lane] = totals[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd == 0 && i < numbers.m && column < numbers.n) {
      V total = totals[i];
      for (uint other = 1; other < simds; ++other) total += partial[other * lanes + lane];
      write_columns(results, numbers, i, column, total);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// --- instances -----------------------------------------------------------------------------------

#define INSTANCE(name, ...) \
  template [[host_name(name)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;

// tiles_<rows>x<columns>x<depth>_<simdgroups>_<layout>_<form>_<dtype>; a letter of the layout is t
// where the operand is stored column-major. There is no tt: the host computes the transposed
// product (B^T A^T, nn) instead.
#define TILES_OF(T, form, width, rows, columns, depth, high, wide)                        \
  INSTANCE("tiles_" #rows "x" #columns "x" #depth "_" #high "x" #wide "_nn_" form "_" #T, \
           tiles<T, rows, columns, depth, high, wide, false, false, width>)               \
  INSTANCE("tiles_" #rows "x" #columns "x" #depth "_" #high "x" #wide "_nt_" form "_" #T, \
           tiles<T, rows, columns, depth, high, wide, false, true, width>)                \
  INSTANCE("tiles_" #rows "x" #columns "x" #depth "_" #high "x" #wide "_tn_" form "_" #T, \
           tiles<T, rows, columns, depth, high, wide, true, false, width>)
#define TILES(rows, columns, depth, high, wide)                   \
  TILES_OF(float, "scalar", 1, rows, columns, depth, high, wide)  \
  TILES_OF(float, "vec4", 4, rows, columns, depth, high, wide)    \
  TILES_OF(half, "scalar", 1, rows, columns, depth, high, wide)   \
  TILES_OF(half, "vec4", 4, rows, columns, depth, high, wide)     \
  TILES_OF(bfloat, "scalar", 1, rows, columns, depth, high, wide) \
  TILES_OF(bfloat, "vec4", 4, rows, columns, depth, high, wide)
// For elements of 16 bits alone: twice as many fit into threadgroup memory.
#define NARROW_TILES(rows, columns, depth, high, wide)            \
  TILES_OF(half, "scalar", 1, rows, columns, depth, high, wide)   \
  TILES_OF(half, "vec4", 4, rows, columns, depth, high, wide)     \
  TILES_OF(half, "vec8", 8, rows, columns, depth, high, wide)     \
  TILES_OF(bfloat, "scalar", 1, rows, columns, depth, high, wide) \
  TILES_OF(bfloat, "vec4", 4, rows, columns, depth, high, wide)   \
  TILES_OF(bfloat, "vec8", 8, rows, columns, depth, high, wide)

TILES(64, 64, 16, 2, 2)
TILES(64, 32, 16, 2, 2)
TILES(32, 64, 16, 2, 2)
TILES(32, 32, 16, 2, 2)
TILES(128, 64, 16, 2, 2)
NARROW_TILES(128, 128, 32, 2, 2)

// dots_<rows>_<form>_<dtype>, and columns.
#define FEW_ROWS_OF(T, form, width, rows)                       \
  INSTANCE("dots_" #rows "_" form "_" #T, dots<T, rows, width>) \
  INSTANCE("columns_" #rows "_" form "_" #T, columns<T, rows, width>)
#define FEW_ROWS(rows)                   \
  FEW_ROWS_OF(float, "scalar", 1, rows)  \
  FEW_ROWS_OF(float, "vec4", 4, rows)    \
  FEW_ROWS_OF(half, "scalar", 1, rows)   \
  FEW_ROWS_OF(half, "vec4", 4, rows)     \
  FEW_ROWS_OF(bfloat, "scalar", 1, rows) \
  FEW_ROWS_OF(bfloat, "vec4", 4, rows)

FEW_ROWS(1)
FEW_ROWS(4)
FEW_ROWS(8)
