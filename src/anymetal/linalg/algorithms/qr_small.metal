// Householder reflections of matrices of up to 32 rows and columns, as in qr.metal.
//
// A lane has a column. Column j is read by all lanes while reflection j is made and applied, and is
// written by none, so a step needs two barriers.
#include "shared/matrices.h"

// What a lane knows of its own column.
struct Column {
  float scale;    // the column was multiplied by it
  float factor;   // tau of its reflection
  float inverse;  // what is below the diagonal is v divided by it
};

// Reduces the columns of a tile to R. Below the diagonal stay the reflections, each one times
// 1 / `inverse` of its lane.
template <uint size>
inline Column reduce_small(threadgroup float* tile, uint rows, uint steps, Place<size> place) {
  threadgroup float* column = tile + place.lane;
  threadgroup const float* matrix = tile + place.base();
  const uint own = place.own(), base = place.base();
  float largest = 0.0f;
  for (uint i = 0; i < rows; ++i) largest = max(largest, fabs(column[i * lanes]));
  Column result = {power_of_two_scale(largest), 0.0f, 0.0f};
  for (uint i = 0; i < rows; ++i) column[i * lanes] *= result.scale;
  simdgroup_barrier(mem_flags::mem_threadgroup);

  for (uint j = 0; j < steps; ++j) {
    float sum = 0.0f;
    for (uint i = j + 1; i < rows; ++i) sum += matrix[i * lanes + j] * column[i * lanes];
    const float row = column[j * lanes];
    const float squares = of_column<size>(sum, base, j);
    const float alpha = of_column<size>(row, base, j);
    const bool needed = !(squares <= negligible);  // NaN goes on
    const float norm = precise::sqrt(alpha * alpha + squares);
    const float beta = needed ? (alpha < 0.0f ? norm : -norm) : alpha;
    const float factor = needed ? (beta - alpha) / beta : 0.0f;
    const float inverse = needed ? 1.0f / (alpha - beta) : 0.0f;
    const float weight = factor * (row + inverse * sum);
    if (own >= j) column[j * lanes] = own > j ? row - weight : beta;
    if (own == j) {
      result.factor = factor;
      result.inverse = inverse;
    }
    const float multiplier = weight * inverse;
    for (uint i = j + 1; i < rows; ++i) {
      const float x = matrix[i * lanes + j];
      if (own > j) column[i * lanes] -= multiplier * x;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  return result;
}

// Applies reflection j, which is a column of `reflections` with 1 in row j, to a column.
inline void reflect_column(threadgroup float* column, threadgroup const float* reflections, uint j,
                           uint rows, float factor, float inverse) {
  float sum = 0.0f;
  for (uint i = j + 1; i < rows; ++i) sum += reflections[i * lanes + j] * column[i * lanes];
  const float weight = factor * (column[j * lanes] + inverse * sum);
  const float multiplier = weight * inverse;
  column[j * lanes] -= weight;
  for (uint i = j + 1; i < rows; ++i) column[i * lanes] -= multiplier * reflections[i * lanes + j];
}

struct Factor {
  long rows;
  long columns;
  long matrices;
  long from;  // the orders of A and R
  long to;
  Strides a;
  Strides r;
};

// R with the reflections below its diagonal, and tau.
template <uint size>
[[kernel]] void geqrf_small(device const float* a [[buffer(0)]], device float* r [[buffer(1)]],
                            device float* tau [[buffer(2)]], constant Factor& shape [[buffer(3)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float tile[lanes * lanes], other[lanes * lanes];
  const Place<size> place{lane, group};
  const uint rows = uint(shape.rows), columns = uint(shape.columns), steps = min(rows, columns);
  const uint own = place.own();
  const bool there = place.matrix() < shape.matrices && own < columns;
  const bool full = place.is_full(shape.matrices);
  load_columns<size>(tile, a, shape.a, full ? shape.from : in_some_way, rows, there, place);
  const Column known = reduce_small<size>(tile, rows, steps, place);
  for (uint i = 0; i < rows; ++i) {
    const float value = tile[i * lanes + lane];
    other[i * lanes + lane] = i <= own ? value / known.scale : value * known.inverse;
  }
  store_columns<size>(other, r, shape.r, full ? shape.to : in_some_way, rows, there, place);
  if (there && own < steps) tau[place.matrix() * steps + own] = known.factor;
}

template [[host_name("geqrf_8")]] [[kernel]] decltype(geqrf_small<8>) geqrf_small<8>;
template [[host_name("geqrf_16")]] [[kernel]] decltype(geqrf_small<16>) geqrf_small<16>;
template [[host_name("geqrf_32")]] [[kernel]] decltype(geqrf_small<32>) geqrf_small<32>;

struct Both {
  long rows;
  long columns;
  long q_columns;
  long matrices;
  long from;  // the orders of A, R and Q
  long to;
  long to_q;
  Strides a;
  Strides r;
  Strides q;
};

// Q and R, in one launch.
template <uint size>
[[kernel]] void qr_small(device const float* a [[buffer(0)]], device float* q [[buffer(1)]],
                         device float* r [[buffer(2)]], constant Both& shape [[buffer(3)]],
                         uint group [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float tile[lanes * lanes], other[lanes * lanes];
  const Place<size> place{lane, group};
  const uint rows = uint(shape.rows), columns = uint(shape.columns), steps = min(rows, columns);
  const uint own = place.own(), base = place.base(), q_columns = uint(shape.q_columns);
  const bool present = place.matrix() < shape.matrices, full = place.is_full(shape.matrices);
  load_columns<size>(tile, a, shape.a, full ? shape.from : in_some_way, rows,
                     present && own < columns, place);
  const Column known = reduce_small<size>(tile, rows, steps, place);

  threadgroup float* column = other + lane;
  for (uint i = 0; i < q_columns; ++i)
    column[i * lanes] = i <= own ? tile[i * lanes + lane] / known.scale : 0.0f;
  store_columns<size>(other, r, shape.r, full ? shape.to : in_some_way, q_columns,
                      present && own < columns, place);
  simdgroup_barrier(mem_flags::mem_threadgroup);

  for (uint i = 0; i < rows; ++i) column[i * lanes] = i == own ? 1.0f : 0.0f;
  for (uint j = steps; j-- > 0;)
    reflect_column(column, tile + base, j, rows, of_column<size>(known.factor, base, j),
                   of_column<size>(known.inverse, base, j));
  store_columns<size>(other, q, shape.q, full ? shape.to_q : in_some_way, rows,
                      present && own < q_columns, place);
}

template [[host_name("qr_8")]] [[kernel]] decltype(qr_small<8>) qr_small<8>;
template [[host_name("qr_16")]] [[kernel]] decltype(qr_small<16>) qr_small<16>;
template [[host_name("qr_32")]] [[kernel]] decltype(qr_small<32>) qr_small<32>;

struct Apply {
  long rows;
  long columns;   // of C
  long count;     // reflections
  long backward;  // the last reflection first: Q C, otherwise Q' C
  long identity;  // C is the identity and not read
  long matrices;
  long from;  // the orders of A, C and the result
  long from_c;
  long to;
  Strides a;
  Strides c;
  Strides result;
};

// Q C or Q' C, or the first columns of Q.
template <uint size>
[[kernel]] void reflect_small(device const float* a [[buffer(0)]],
                              device const float* tau [[buffer(1)]],
                              device const float* c [[buffer(2)]],
                              device float* result [[buffer(3)]],
                              constant Apply& shape [[buffer(4)]],
                              uint group [[threadgroup_position_in_grid]],
                              uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float tile[lanes * lanes], other[lanes * lanes];
  const Place<size> place{lane, group};
  const uint rows = uint(shape.rows), count = uint(shape.count);
  const uint own = place.own(), base = place.base(), matrix = place.matrix();
  const bool present = matrix < shape.matrices, full = place.is_full(shape.matrices);
  const bool there = present && own < shape.columns;
  load_columns<size>(tile, a, shape.a, full ? shape.from : in_some_way, rows,
                     present && own < count, place);
  threadgroup float* column = other + lane;
  if (shape.identity != 0)
    for (uint i = 0; i < rows; ++i) column[i * lanes] = i == own ? 1.0f : 0.0f;
  else
    load_columns<size>(other, c, shape.c, full ? shape.from_c : in_some_way, rows, there, place);
  const float factor = present && own < count ? tau[matrix * count + own] : 0.0f;
  for (uint step = 0; step < count; ++step) {
    const uint j = shape.backward != 0 ? count - 1 - step : step;
    reflect_column(column, tile + base, j, rows, of_column<size>(factor, base, j), 1.0f);
  }
  store_columns<size>(other, result, shape.result, full ? shape.to : in_some_way, rows, there,
                      place);
}

template [[host_name("reflect_8")]] [[kernel]] decltype(reflect_small<8>) reflect_small<8>;
template [[host_name("reflect_16")]] [[kernel]] decltype(reflect_small<16>) reflect_small<16>;
template [[host_name("reflect_32")]] [[kernel]] decltype(reflect_small<32>) reflect_small<32>;
