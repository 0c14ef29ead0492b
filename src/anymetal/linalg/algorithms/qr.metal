// Householder reflections H = I - tau v v': a matrix reduced to R by them, or multiplied by them.
//
// v has zeros above its diagonal and 1 on it, and is stored below the diagonal of R.
#include <metal_simdgroup_matrix>

#include "shared/matrices.h"

constant constexpr uint most_simdgroups = 8;
struct Shape {
  long rows;
  long columns;
  long start;  // of the panel
  long count;  // columns of the panel, or reflections
  Strides a;
  Strides r;
  Strides tau;
  Strides v;
};

// Reduces `rows` rows of `columns` numbers that are `stride` apart. Simdgroup s owns rows s, s +
// simdgroups, and so on: only row j is read by all, and is written when they are past it. One pass
// over the rows applies a reflection and gathers the sums that the next one needs.
template <uint chunks, typename Pointer>
inline void reduce(Pointer a, long stride, uint rows, uint columns, device float* tau,
                   threadgroup float* partial, thread const Crew& crew, mem_flags flags) {
  const uint width = chunks * lanes;
  float sums[chunks], row_j[chunks], weights[chunks];
#pragma unroll
  for (uint k = 0; k < chunks; ++k) sums[k] = row_j[k] = 0.0f;
  for (uint i = crew.simd == 0 ? crew.simdgroups : crew.simd; i < rows; i += crew.simdgroups) {
    const float x = a[i * stride];
#pragma unroll
    for (uint k = 0; k < chunks; ++k) sums[k] += x * a[i * stride + k * lanes + crew.lane];
  }
  const uint steps = min(rows, columns);
  for (uint j = 0; j < steps; ++j) {
    threadgroup float* shared = partial + (j % 2) * crew.simdgroups * width;
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      shared[crew.simd * width + k * lanes + crew.lane] = sums[k];
      sums[k] = 0.0f;
    }
    threadgroup_barrier(flags);
    if (j > 0 && (j - 1) % crew.simdgroups == crew.simd)
#pragma unroll
      for (uint k = 0; k < chunks; ++k) a[(j - 1) * stride + k * lanes + crew.lane] = row_j[k];

    float squares = 0.0f;
    for (uint s = 0; s < crew.simdgroups; ++s) squares += shared[s * width + j];
    const float alpha = a[j * stride + j];
    const bool needed = !(squares <= negligible);  // NaN goes on
    const float norm = precise::sqrt(alpha * alpha + squares);
    const float beta = needed ? (alpha < 0.0f ? norm : -norm) : alpha;
    const float factor = needed ? (beta - alpha) / beta : 0.0f;
    const float scale = needed ? 1.0f / (alpha - beta) : 0.0f;
    if (crew.simd == 0 && crew.lane == 0) tau[j] = factor;
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      const uint c = k * lanes + crew.lane;
      float sum = 0.0f;
      for (uint s = 0; s < crew.simdgroups; ++s) sum += shared[s * width + c];
      const float value = a[j * stride + c];
      weights[k] = factor * (value + scale * sum);
      row_j[k] = c > j ? value - weights[k] : c == j ? beta : value;
    }

    const uint next = j + 1;
    for (uint i = next + (crew.simd + crew.simdgroups - next % crew.simdgroups) % crew.simdgroups;
         i < rows; i += crew.simdgroups) {
      const float below = a[i * stride + j / lanes * lanes + crew.lane];
      const float v = simd_broadcast(below, ushort(j % lanes)) * scale;
      float x = 0.0f;
#pragma unroll
      for (uint k = 0; k < chunks; ++k) {
        const uint c = k * lanes + crew.lane;
        const float value = a[i * stride + c];
        const float kept = c > j ? value - weights[k] * v : c == j ? v : value;
        a[i * stride + c] = kept;
        if (next / lanes == k) x = i > next ? simd_broadcast(kept, ushort(next % lanes)) : 0.0f;
        sums[k] += x * kept;
      }
    }
  }
  threadgroup_barrier(flags);
  if ((steps - 1) % crew.simdgroups == crew.simd)
#pragma unroll
    for (uint k = 0; k < chunks; ++k) a[(steps - 1) * stride + k * lanes + crew.lane] = row_j[k];
}

// The largest number of each of a lane's columns, in all rows.
template <uint chunks>
inline void largest_of_columns(thread float (&largest)[chunks], threadgroup float* partial,
                               thread const Crew& crew) {
  const uint width = chunks * lanes;
#pragma unroll
  for (uint k = 0; k < chunks; ++k) partial[crew.simd * width + k * lanes + crew.lane] = largest[k];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = 0; s < crew.simdgroups; ++s)
#pragma unroll
    for (uint k = 0; k < chunks; ++k)
      largest[k] = max(largest[k], partial[s * width + k * lanes + crew.lane]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// A threadgroup a matrix. Columns are scaled by powers of two, so that no square overflows or
// vanishes; that changes nothing of the reflections and is undone in R.
template <uint capacity, uint chunks>
[[kernel]] void qr_tile(device const float* a [[buffer(0)]], device float* r [[buffer(1)]],
                        device float* tau [[buffer(2)]], constant Shape& shape [[buffer(3)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float tile[capacity];
  threadgroup float partial[2 * most_simdgroups * chunks * lanes];
  const uint rows = uint(shape.rows), columns = uint(shape.columns), width = chunks * lanes;
  const Crew crew{lane, simd, simdgroups};
  float largest[chunks];
#pragma unroll
  for (uint k = 0; k < chunks; ++k) largest[k] = 0.0f;
  for (uint i = simd; i < rows; i += simdgroups)
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      const uint c = k * lanes + lane;
      const float value = c < columns ? a[shape.a.at(group, i, c)] : 0.0f;
      tile[i * width + c] = value;
      largest[k] = max(largest[k], fabs(value));
    }
  largest_of_columns<chunks>(largest, partial, crew);
  float scales[chunks];
#pragma unroll
  for (uint k = 0; k < chunks; ++k) scales[k] = power_of_two_scale(largest[k]);
  for (uint i = simd; i < rows; i += simdgroups)
#pragma unroll
    for (uint k = 0; k < chunks; ++k) tile[i * width + k * lanes + lane] *= scales[k];
  threadgroup_barrier(mem_flags::mem_threadgroup);

  reduce<chunks, threadgroup float*>(tile, width, rows, columns, tau + group * shape.tau.matrix,
                                     partial, crew, mem_flags::mem_threadgroup);

  for (uint i = simd; i < rows; i += simdgroups)
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      const uint c = k * lanes + lane;
      const float value = tile[i * width + c];
      if (c < columns) r[shape.r.at(group, i, c)] = i <= c ? value / scales[k] : value;
    }
}

template [[host_name("qr_tall")]] [[kernel]] decltype(qr_tile<7168, 1>) qr_tile<7168, 1>;
template [[host_name("qr_medium")]] [[kernel]] decltype(qr_tile<6144, 2>) qr_tile<6144, 2>;

// A thread a column: R = A scaled by a power of two, which is kept.
[[kernel]] void scale_columns(device const float* a [[buffer(0)]], device float* r [[buffer(1)]],
                              device float* scales [[buffer(2)]],
                              constant Shape& shape [[buffer(3)]],
                              uint2 at [[thread_position_in_grid]]) {
  if (at.x >= shape.columns) return;
  float largest = 0.0f;
  for (uint i = 0; i < shape.rows; ++i) largest = max(largest, fabs(a[shape.a.at(at.y, i, at.x)]));
  const float scale = power_of_two_scale(largest);
  for (uint i = 0; i < shape.rows; ++i)
    r[shape.r.at(at.y, i, at.x)] = a[shape.a.at(at.y, i, at.x)] * scale;
  scales[at.y * shape.columns + at.x] = scale;
}

// A thread a column: the scale is undone in R, which ends at the diagonal.
[[kernel]] void restore_columns(device float* r [[buffer(0)]],
                                device const float* scales [[buffer(1)]],
                                constant Shape& shape [[buffer(2)]],
                                uint2 at [[thread_position_in_grid]]) {
  if (at.x >= shape.columns) return;
  const float scale = scales[at.y * shape.columns + at.x];
  for (uint i = 0; i <= at.x && i < shape.rows; ++i) r[shape.r.at(at.y, i, at.x)] /= scale;
}

// --- reflections together: H1 H2 ... = I - V T V' ------------------------------------------------

// Memory for V' V and T.
struct Squares {
  threadgroup float* gram;
  threadgroup float* t;  // T', so that lanes read neighbours
};

// Y = V T, for V of `tall` rows of 32, of which a multiple of 8 are there.
inline void times_t(device const float* v, device float* y, device const float* tau, uint count,
                    uint tall, Squares squares, thread const Crew& crew) {
  for (uint g = crew.simd; g < 4; g += crew.simdgroups) {
    simdgroup_float8x8 sums[4];
#pragma unroll
    for (uint j = 0; j < 4; ++j) sums[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint i = 0; i < tall; i += 8) {
      simdgroup_float8x8 left, right;
      simdgroup_load(left, v + i * lanes + 8 * g, lanes, ulong2(0), true);
#pragma unroll
      for (uint j = 0; j < 4; ++j) {
        simdgroup_load(right, v + i * lanes + 8 * j, lanes);
        simdgroup_multiply_accumulate(sums[j], left, right, sums[j]);
      }
    }
#pragma unroll
    for (uint j = 0; j < 4; ++j)
      simdgroup_store(sums[j], squares.gram + 8 * g * lanes + 8 * j, lanes);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  if (crew.simd == 0) {
    for (uint j = 0; j < lanes; ++j) {
      const float factor = j < count ? tau[j] : 0.0f;
      float sum = 0.0f;
      // Below its diagonal T is zero, and so are the terms of lanes past k.
      for (uint k = 0; k < j; ++k)
        sum += squares.t[k * lanes + crew.lane] * squares.gram[k * lanes + j];
      squares.t[j * lanes + crew.lane] = crew.lane < j    ? -factor * sum
                                         : crew.lane == j ? factor
                                                          : 0.0f;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  for (uint i = 8 * crew.simd; i < tall; i += 8 * crew.simdgroups) {
    simdgroup_float8x8 results[4], left, right;
#pragma unroll
    for (uint j = 0; j < 4; ++j) results[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
#pragma unroll
    for (uint k = 0; k < 4; ++k) {
      simdgroup_load(left, v + i * lanes + 8 * k, lanes);
#pragma unroll
      for (uint j = k; j < 4; ++j) {
        simdgroup_load(right, squares.t + 8 * j * lanes + 8 * k, lanes, ulong2(0), true);
        simdgroup_multiply_accumulate(results[j], left, right, results[j]);
      }
    }
#pragma unroll
    for (uint j = 0; j < 4; ++j) simdgroup_store(results[j], y + i * lanes + 8 * j, lanes);
  }
}

// Row i of V, with its zeros and ones, where `below` is what stands under R's diagonal.
inline float reflection(uint i, uint lane, uint rows, uint count, float below) {
  if (lane >= count || i >= rows) return 0.0f;
  return i > lane ? below : i == lane ? 1.0f : 0.0f;
}

// A threadgroup a panel of 32 columns, in rows of `scratch` while it is worked on; then its V and
// Y, where columns follow that it is to be applied to.
[[kernel]] void qr_panel(device float* r [[buffer(0)]], device float* scratch [[buffer(1)]],
                         device float* tau [[buffer(2)]], device float* v [[buffer(3)]],
                         device float* y [[buffer(4)]], constant Shape& shape [[buffer(5)]],
                         uint group [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[2 * most_simdgroups * lanes];
  threadgroup float gram[lanes * lanes];
  threadgroup float t[lanes * lanes];
  const uint start = uint(shape.start), rows = uint(shape.rows) - start;
  const uint count = uint(shape.count);
  const bool inside = lane < count;
  const Crew crew{lane, simd, simdgroups};
  device float* panel = scratch + group * shape.rows * lanes;
  device float* from = r + shape.r.at(group, start, start + min(lane, count - 1));
  tau += group * shape.tau.matrix + start;
  for (uint i = simd; i < rows; i += simdgroups)
    panel[i * lanes + lane] = inside ? from[i * shape.r.row] : 0.0f;
  threadgroup_barrier(mem_flags::mem_device);
  reduce<1, device float*>(panel, lanes, rows, count, tau, partial, crew,
                           mem_flags::mem_device | mem_flags::mem_threadgroup);
  for (uint i = simd; i < rows; i += simdgroups)
    if (inside) from[i * shape.r.row] = panel[i * lanes + lane];
  if (start + count >= shape.columns) return;

  const uint tall = (rows + 7) / 8 * 8;
  v += group * shape.v.matrix;
  y += group * shape.v.matrix;
  for (uint i = simd; i < tall; i += simdgroups)
    v[i * lanes + lane] = reflection(i, lane, rows, count, panel[min(i, rows - 1) * lanes + lane]);
  threadgroup_barrier(mem_flags::mem_device);
  times_t(v, y, tau, count, tall, Squares{gram, t}, crew);
}

// A threadgroup of four simdgroups for each panel of 32 reflections of A: its V and Y. `count`
// reflections are there in all.
[[kernel]] void reflections_together(device const float* a [[buffer(0)]],
                                     device const float* tau [[buffer(1)]],
                                     device float* v [[buffer(2)]], device float* y [[buffer(3)]],
                                     constant Shape& shape [[buffer(4)]],
                                     uint2 group [[threadgroup_position_in_grid]],
                                     uint lane [[thread_index_in_simdgroup]],
                                     uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float gram[lanes * lanes];
  threadgroup float t[lanes * lanes];
  const uint start = group.x * lanes, rows = uint(shape.rows) - start;
  const uint count = min(uint(shape.count) - start, lanes), tall = (rows + 7) / 8 * 8;
  const long panel = group.y * shape.v.matrix + group.x * shape.v.row;
  v += panel;
  y += panel;
  for (uint i = simd; i < tall; i += 4) {
    const bool below = i < rows && lane < count && i > lane;
    const float value = below ? a[shape.a.at(group.y, start + i, start + lane)] : 0.0f;
    v[i * lanes + lane] = reflection(i, lane, rows, count, value);
  }
  threadgroup_barrier(mem_flags::mem_device);
  times_t(v, y, tau + group.y * shape.tau.matrix + start, count, tall, Squares{gram, t},
          Crew{lane, simd, 4});
}

struct Block {
  long rows;    // a multiple of 8
  long matrix;  // from one matrix of `left` and `right` to the next
  Strides c;
};

// C -= right left' C, for `left` and `right` of rows of 32. Four simdgroups have 32 columns of C:
// each sums over an eighth row of every four, and then updates those rows.
[[kernel]] void reflect_block(device const float* left [[buffer(0)]],
                              device const float* right [[buffer(1)]],
                              device float* c [[buffer(2)]], constant Block& shape [[buffer(3)]],
                              uint2 group [[threadgroup_position_in_grid]],
                              uint in_group [[thread_index_in_threadgroup]],
                              uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float sums[4 * lanes * lanes];
  const uint rows = uint(shape.rows), stride = uint(shape.c.row);
  left += group.y * shape.matrix;
  right += group.y * shape.matrix;
  c += group.y * shape.c.matrix + group.x * lanes;

  simdgroup_float8x8 w[4][4], factors[4], values[4];
#pragma unroll
  for (uint k = 0; k < 4; ++k)
#pragma unroll
    for (uint j = 0; j < 4; ++j) w[k][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint i = 8 * simd; i < rows; i += 32) {
#pragma unroll
    for (uint k = 0; k < 4; ++k) {
      simdgroup_load(factors[k], left + i * lanes + 8 * k, lanes, ulong2(0), true);
      simdgroup_load(values[k], c + i * stride + 8 * k, stride);
    }
#pragma unroll
    for (uint k = 0; k < 4; ++k)
#pragma unroll
      for (uint j = 0; j < 4; ++j)
        simdgroup_multiply_accumulate(w[k][j], factors[k], values[j], w[k][j]);
  }
#pragma unroll
  for (uint k = 0; k < 4; ++k)
#pragma unroll
    for (uint j = 0; j < 4; ++j)
      simdgroup_store(w[k][j], sums + (simd * lanes + 8 * k) * lanes + 8 * j, lanes);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint at = in_group; at < lanes * lanes; at += 4 * lanes)
    sums[at] = -((sums[at] + sums[at + lanes * lanes]) +
                 (sums[at + 2 * lanes * lanes] + sums[at + 3 * lanes * lanes]));
  threadgroup_barrier(mem_flags::mem_threadgroup);

#pragma unroll
  for (uint k = 0; k < 4; ++k)
#pragma unroll
    for (uint j = 0; j < 4; ++j) simdgroup_load(w[k][j], sums + 8 * k * lanes + 8 * j, lanes);
  for (uint i = 8 * simd; i < rows; i += 32) {
#pragma unroll
    for (uint k = 0; k < 4; ++k) {
      simdgroup_load(factors[k], right + i * lanes + 8 * k, lanes);
      simdgroup_load(values[k], c + i * stride + 8 * k, stride);
    }
#pragma unroll
    for (uint j = 0; j < 4; ++j)
#pragma unroll
      for (uint k = 0; k < 4; ++k)
        simdgroup_multiply_accumulate(values[j], factors[k], w[k][j], values[j]);
#pragma unroll
    for (uint j = 0; j < 4; ++j) simdgroup_store(values[j], c + i * stride + 8 * j, stride);
  }
}

// --- reflections one by one ----------------------------------------------------------------------

struct Apply {
  long rows;
  long columns;   // of C
  long count;     // reflections
  long backward;  // the last reflection first: Q C, otherwise Q' C
  long identity;  // C is the identity and not read
  Strides a;
  Strides tau;
  Strides c;
  Strides result;
};

// A threadgroup a matrix C.
template <uint capacity, uint chunks>
[[kernel]] void reflect_tile(
    device const float* a [[buffer(0)]], device const float* tau [[buffer(1)]],
    device const float* c [[buffer(2)]], device float* result [[buffer(3)]],
    constant Apply& shape [[buffer(4)]], uint group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float tile[capacity];
  threadgroup float partial[2 * most_simdgroups * chunks * lanes];
  const uint rows = uint(shape.rows), columns = uint(shape.columns), width = chunks * lanes;
  const uint count = uint(shape.count);
  for (uint i = simd; i < rows; i += simdgroups)
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      const uint j = k * lanes + lane;
      const float given = shape.identity == 0 && j < columns ? c[shape.c.at(group, i, j)] : 0.0f;
      tile[i * width + j] = shape.identity != 0 && i == j ? 1.0f : given;
    }

  for (uint step = 0; step < count; ++step) {
    const uint j = shape.backward != 0 ? count - 1 - step : step;
    threadgroup float* shared = partial + (step % 2) * simdgroups * width;
    device const float* v = a + shape.a.at(group, 0, j);
    // This simdgroup's first row from the diagonal on.
    const uint own = j + (simd + simdgroups - j % simdgroups) % simdgroups;
    float sums[chunks];
#pragma unroll
    for (uint k = 0; k < chunks; ++k) sums[k] = 0.0f;
    for (uint i = own; i < rows; i += simdgroups) {
      const float x = i == j ? 1.0f : v[i * shape.a.row];
#pragma unroll
      for (uint k = 0; k < chunks; ++k) sums[k] += x * tile[i * width + k * lanes + lane];
    }
#pragma unroll
    for (uint k = 0; k < chunks; ++k) shared[simd * width + k * lanes + lane] = sums[k];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float factor = tau[group * shape.tau.matrix + j];
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      float sum = 0.0f;
      for (uint s = 0; s < simdgroups; ++s) sum += shared[s * width + k * lanes + lane];
      sums[k] = factor * sum;
    }
    for (uint i = own; i < rows; i += simdgroups) {
      const float x = i == j ? 1.0f : v[i * shape.a.row];
#pragma unroll
      for (uint k = 0; k < chunks; ++k) tile[i * width + k * lanes + lane] -= x * sums[k];
    }
  }

  for (uint i = simd; i < rows; i += simdgroups)
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      const uint j = k * lanes + lane;
      if (j < columns) result[shape.result.at(group, i, j)] = tile[i * width + j];
    }
}

template
    [[host_name("reflect_tall")]] [[kernel]] decltype(reflect_tile<7168, 1>) reflect_tile<7168, 1>;
template [[host_name(
    "reflect_medium")]] [[kernel]] decltype(reflect_tile<6144, 2>) reflect_tile<6144, 2>;
