// Gradients of attention. Weights are computed again from the logarithms of the forward pass.
//
// With score s, weight p = exp(s - logarithm) and the gradient g of the result, the gradient of a
// score is p * (g . value - delta), where delta = g . result is one number a query. A threadgroup
// sums up the gradients of a block of queries over all keys (attention_query_gradient), or those of
// a block of keys and values over all queries that see them, of all heads that share them
// (attention_key_gradient). No two threadgroups write to one place.
#include "shared/attention.h"

// delta of every query: a simdgroup each.
template <typename T>
[[kernel]] void attention_delta(device const T* gradient [[buffer(0)]],
                                device const T* result [[buffer(1)]],
                                device float* deltas [[buffer(2)]],
                                constant Numbers& numbers [[buffer(3)]],
                                uint in_grid [[thread_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]]) {
  const uint row = in_grid / 32;
  const uint query = row % numbers.queries;
  const uint head = row / numbers.queries % numbers.heads;
  const uint sample = row / numbers.queries / numbers.heads;
  gradient += start_of(numbers.gradient, sample, head, query);
  result += start_of(numbers.result, sample, head, query);
  float sum = 0.0f;
  for (uint column = lane; column < numbers.value_width; column += 32)
    sum = fma(float(gradient[column]), float(result[column]), sum);
  sum = simd_sum(sum);
  if (lane == 0) deltas[row] = sum;
}

// What the forward pass left of a query, such that one that saw nothing has weights of zero.
inline float exponent_base(float logarithm) {
  return logarithm == -INFINITY ? INFINITY : logarithm;
}

// One element of the matrix of scores and of its gradient.
struct Element {
  float weight;
  float gradient;          // of the score
  float product_gradient;  // of the product of query and key, less the scale
};

template <typename M, uint options>
inline Element element_of(thread const Scores<M, options>& scores, float product, float reached,
                          float base, float delta, uint query, uint key) {
  const float capped = scores.capped(product);
  const float score = scores.with_bias(capped, query, key);
  const float weight = exp(score - base);
  const float gradient = weight * (reached - delta);
  return {weight, gradient, gradient * scores.derivative(capped)};
}

// --- queries -------------------------------------------------------------------------------------

// Eight queries of a simdgroup, with the gradients of their results.
template <typename T, typename M, uint width, uint options>
struct Queries {
  simdgroup_matrix<T, 8, 8> query[width / 8];
  simdgroup_matrix<T, 8, 8> gradient[width / 8];
  simdgroup_float8x8 sum[width / 8];
  Scores<M, options> scores;
  float base;
  float delta;
  float slope_gradient;
  device float* mask_gradient;  // of the lane's row, which has so many keys
  uint keys;
  Range seen;
  uint row;
  Lane at;

  template <bool edge>
  float element(float product, float reached, uint key) {
    if (edge && !holds(seen, key)) {
      if ((options & wants_mask_gradient) != 0 && key < keys) mask_gradient[key] = 0.0f;
      return 0.0f;
    }
    const Element found = element_of(scores, product, reached, base, delta, row, key);
    if constexpr ((options & has_slopes) != 0)
      slope_gradient -= found.gradient * scores.distance(row, key);
    if constexpr ((options & wants_mask_gradient) != 0) mask_gradient[key] = found.gradient;
    return found.product_gradient;
  }

  template <bool edge, uint tile_keys>
  void attend(threadgroup const T* key_tile, threadgroup const T* value_tile, uint first_key) {
    constexpr uint stride = tile_stride<T, width>();
#pragma unroll
    for (uint j = 0; j < tile_keys / 8; ++j) {
      simdgroup_float8x8 scores;
      products<width, 1>(&scores, &query, key_tile + j * 8 * stride);
      simdgroup_float8x8 reached;
      products<width, 1>(&reached, &gradient, value_tile + j * 8 * stride);
#pragma unroll
      for (uint e = 0; e < 2; ++e)
        scores.thread_elements()[e] =
            element<edge>(scores.thread_elements()[e], reached.thread_elements()[e],
                          first_key + j * 8 + at.column + e);
      add_products<width, 1>(&sum, &scores, key_tile + j * 8 * stride);
    }
  }
};

// The result is the gradient of the queries; that of the mask is dense.
template <typename T, typename M, uint width, bool ragged, uint count, uint options>
[[kernel]] void attention_query_gradient(
    device const T* queries [[buffer(0)]], device const T* keys [[buffer(1)]],
    device const T* values [[buffer(2)]], device const T* gradients [[buffer(3)]],
    device const float* logarithms [[buffer(4)]], device const float* deltas [[buffer(5)]],
    device const M* mask [[buffer(6)]], device const float* slopes [[buffer(7)]],
    device T* result [[buffer(8)]], device float* slope_gradients [[buffer(9)]],
    device float* mask_gradient [[buffer(10)]], constant Numbers& numbers [[buffer(11)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  constexpr uint rows = tile_rows<T, width>();
  constexpr uint stride = tile_stride<T, width>();
  threadgroup T key_tile[rows * stride];
  threadgroup T value_tile[rows * stride];
  const Team team = {lane, simd, simds};
  const uint first_query = (groups.x - 1 - group.x) * simds * 8;
  const uint last_query = min(first_query + simds * 8, numbers.queries) - 1;
  const uint head = group.y;
  const uint sample = group.z;
  keys += start_of(numbers.key, sample, head / numbers.shared_by, 0);
  values += start_of(numbers.value, sample, head / numbers.shared_by, 0);

  Queries<T, M, width, options> block;
  block.at = lane_of(lane);
  const uint query = first_query + simd * 8 + block.at.row;
  const bool present = query < numbers.queries;
  block.row = min(query, last_query);
  const long place = (long(sample) * numbers.heads + head) * numbers.queries + block.row;
  block.seen = present ? keys_of(query, numbers) : Range{0, 0};
  block.scores = scores_of<M, options>(sample, head, mask, slopes, numbers);
  block.base = present ? exponent_base(logarithms[place]) : INFINITY;
  block.delta = deltas[place];
  block.slope_gradient = 0.0f;
  block.mask_gradient = mask_gradient + place * numbers.keys;
  block.keys = present ? numbers.keys : 0;
  load_rows<width>(block.query, queries + start_of(numbers.query, sample, head, block.row), present,
                   numbers.width, block.at);
  load_rows<width>(block.gradient, gradients + start_of(numbers.gradient, sample, head, block.row),
                   present, numbers.value_width, block.at);
  clear_rows<width>(block.sum);

  Walk walk = walk_of(keys_of(first_query, numbers), keys_of(last_query, numbers), rows);
  // The gradient of a mask is written for every key, but not by rows that are not there.
  if ((options & wants_mask_gradient) != 0) walk = {0, 0, 0, (numbers.keys + rows - 1) / rows};
  for (uint tile = walk.first; tile < walk.end; ++tile) {
    const uint first_key = tile * rows;
    const uint here = min(rows, numbers.keys - first_key);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // the tile before has been used
    load_tile<rows, width, ragged, count>(key_tile, keys + first_key * numbers.key.row,
                                          numbers.key.row, here, numbers.width, team);
    load_tile<rows, width, ragged, count>(value_tile, values + first_key * numbers.value.row,
                                          numbers.value.row, here, numbers.value_width, team);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tile >= walk.whole_first && tile < walk.whole_end)
      block.template attend<false, rows>(key_tile, value_tile, first_key);
    else
      block.template attend<true, rows>(key_tile, value_tile, first_key);
  }

  const float slope_gradient = row_sum(block.slope_gradient);
  if (!present) return;
  store_rows<width>(result + start_of(numbers.result, sample, head, query), block.sum,
                    block.scores.scale, numbers.width, block.at);
  if ((options & has_slopes) != 0 && block.at.column == 0) slope_gradients[place] = slope_gradient;
}

// --- keys and values -----------------------------------------------------------------------------

// Eight keys and their values; everything is transposed: rows are keys, columns are queries.
template <typename T, typename M, uint width, uint options>
struct Keys {
  simdgroup_matrix<T, 8, 8> key[width / 8];
  simdgroup_matrix<T, 8, 8> value[width / 8];
  simdgroup_float8x8 key_sum[width / 8];
  simdgroup_float8x8 value_sum[width / 8];
  Scores<M, options> scores;
  Range seen_by;
  uint row;
  Lane at;

  // `bases` and `deltas` are those of the tile's queries.
  template <bool edge, uint queries>
  void attend(threadgroup const T* query_tile, threadgroup const T* gradient_tile,
              threadgroup const float* bases, threadgroup const float* deltas, uint first_query) {
    constexpr uint stride = tile_stride<T, width>();
#pragma unroll
    for (uint j = 0; j < queries / 8; ++j) {
      simdgroup_float8x8 weights;
      products<width, 1>(&weights, &key, query_tile + j * 8 * stride);
      simdgroup_float8x8 reached;
      products<width, 1>(&reached, &value, gradient_tile + j * 8 * stride);
#pragma unroll
      for (uint e = 0; e < 2; ++e) {
        const uint column = j * 8 + at.column + e;
        const uint query = first_query + column;
        Element found = {0.0f, 0.0f, 0.0f};
        if (!edge || holds(seen_by, query))
          found = element_of(scores, weights.thread_elements()[e], reached.thread_elements()[e],
                             bases[column], deltas[column], query, row);
        weights.thread_elements()[e] = found.weight;
        reached.thread_elements()[e] = found.product_gradient;
      }
      add_products<width, 1>(&value_sum, &weights, gradient_tile + j * 8 * stride);
      add_products<width, 1>(&key_sum, &reached, query_tile + j * 8 * stride);
    }
  }
};

// Results are the gradients of keys, then those of values.
template <typename T, typename M, uint width, bool ragged, uint count, uint options>
[[kernel]] void attention_key_gradient(
    device const T* queries [[buffer(0)]], device const T* keys [[buffer(1)]],
    device const T* values [[buffer(2)]], device const T* gradients [[buffer(3)]],
    device const float* logarithms [[buffer(4)]], device const float* deltas [[buffer(5)]],
    device const M* mask [[buffer(6)]], device const float* slopes [[buffer(7)]],
    device T* key_result [[buffer(8)]], device T* value_result [[buffer(9)]],
    constant Numbers& numbers [[buffer(10)]], uint3 group [[threadgroup_position_in_grid]],
    uint in_group [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]]) {
  constexpr uint rows = tile_rows<T, width>();
  constexpr uint stride = tile_stride<T, width>();
  threadgroup T query_tile[rows * stride];
  threadgroup T gradient_tile[rows * stride];
  threadgroup float bases[rows];
  threadgroup float delta_tile[rows];
  const Team team = {lane, simd, simds};
  const uint first_key = group.x * simds * 8;
  const uint last_key = min(first_key + simds * 8, numbers.keys) - 1;
  const uint key_head = group.y;
  const uint sample = group.z;

  Keys<T, M, width, options> block;
  block.at = lane_of(lane);
  const uint key = first_key + simd * 8 + block.at.row;
  const bool present = key < numbers.keys;
  block.row = min(key, last_key);
  block.seen_by = present ? queries_of(key, numbers) : Range{0, 0};
  load_rows<width>(block.key, keys + start_of(numbers.key, sample, key_head, block.row), present,
                   numbers.width, block.at);
  load_rows<width>(block.value, values + start_of(numbers.value, sample, key_head, block.row),
                   present, numbers.value_width, block.at);
  clear_rows<width>(block.key_sum);
  clear_rows<width>(block.value_sum);

  const Walk walk = walk_of(queries_of(first_key, numbers), queries_of(last_key, numbers), rows);
  for (uint i = 0; i < numbers.shared_by; ++i) {
    const uint head = key_head * numbers.shared_by + i;
    const long place = (long(sample) * numbers.heads + head) * numbers.queries;
    device const T* head_queries = queries + start_of(numbers.query, sample, head, 0);
    device const T* head_gradients = gradients + start_of(numbers.gradient, sample, head, 0);
    block.scores = scores_of<M, options>(sample, head, mask, slopes, numbers);
    for (uint tile = walk.first; tile < walk.end; ++tile) {
      const uint first_query = tile * rows;
      const uint here = min(rows, numbers.queries - first_query);
      threadgroup_barrier(mem_flags::mem_threadgroup);  // the tile before has been used
      load_tile<rows, width, ragged, count>(query_tile,
                                            head_queries + first_query * numbers.query.row,
                                            numbers.query.row, here, numbers.width, team);
      load_tile<rows, width, ragged, count>(gradient_tile,
                                            head_gradients + first_query * numbers.gradient.row,
                                            numbers.gradient.row, here, numbers.value_width, team);
      if (in_group < rows) {
        const bool inside = in_group < here;
        bases[in_group] = inside ? exponent_base(logarithms[place + first_query + in_group]) : 0.0f;
        delta_tile[in_group] = inside ? deltas[place + first_query + in_group] : 0.0f;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (tile >= walk.whole_first && tile < walk.whole_end)
        block.template attend<false, rows>(query_tile, gradient_tile, bases, delta_tile,
                                           first_query);
      else
        block.template attend<true, rows>(query_tile, gradient_tile, bases, delta_tile,
                                          first_query);
    }
  }

  if (!present) return;
  const long row_of_key = key;
  store_rows<width>(key_result + start_of(numbers.result, sample, key_head, row_of_key),
                    block.key_sum, block.scores.scale, numbers.width, block.at);
  store_rows<width>(value_result + start_of(numbers.value_result, sample, key_head, row_of_key),
                    block.value_sum, 1.0f, numbers.value_width, block.at);
}
