// Eigenvalues and singular values by Jacobi rotations, each of a pair of columns.
//
// In round r of a sweep, column j meets column j ^ r: every pair once, with no table. Blocks of 32
// columns of a large matrix meet in the order of a tournament. Rotations are applied in
// Rutishauser's form, x - s (y + tau x), which keeps vectors orthogonal over many of them.
#include <metal_simdgroup_matrix>

#include "shared/matrices.h"

constant constexpr float epsilon = 1.1920929e-7f;
constant constexpr uint most_sweeps = 20;
constant constexpr uint half_block = 32;
constant constexpr uint block = 64;

struct Rotation {
  float s;
  float tau;
  float shift;  // t * g: leaves the smaller index, comes to the larger
};

// The rotation that makes g, the number off the diagonal of [[a, g], [g, b]], zero.
inline Rotation rotation(float a, float b, float g) {
  const float z = (b - a) / (2.0f * g);
  const float t = (z < 0.0f ? -1.0f : 1.0f) / (fabs(z) + precise::sqrt(1.0f + z * z));
  const float c = 1.0f / precise::sqrt(1.0f + t * t);
  const float s = t * c;
  return Rotation{s, s / (1.0f + c), t * g};
}

// --- two-sided: a symmetric matrix in threadgroup memory -----------------------------------------

// When a number off the diagonal is worth a rotation.
struct Rule {
  float limit;     // |g| must pass this,
  float relative;  // and this times sqrt(a b)
  float dead;      // diagonals up to this are zero but for rounding

  bool wants(float a, float b, float g) const thread {
    return fabs(g) > limit && fabs(g) > relative * precise::sqrt(max(a, 0.0f) * max(b, 0.0f)) &&
           (relative == 0.0f || min(a, b) > dead);
  }
};

// `size` (a power of two) rows of 32 * `chunks` numbers; matrices of fewer than 32 columns stand
// side by side. A lane has a column of each chunk; `diagonal` is what it has of the diagonal. V' is
// rotated along.
template <uint chunks>
struct Symmetric {
  static constexpr constant uint width = chunks * lanes;

  threadgroup float* a;
  threadgroup float* vt;
  uint size;
  float diagonal[chunks];

  // What the lane of column ^ r has.
  float partner(thread const float (&values)[chunks], uint chunk, uint r) const thread {
    if constexpr (chunks == 1) return simd_shuffle_xor(values[0], ushort(r));
    const float asked = r < lanes ? values[chunk] : values[chunks - 1 - chunk];
    return simd_shuffle_xor(asked, ushort(r % lanes));
  }

  // What the lane of a column of the same matrix has.
  template <typename T>
  T of_column(thread const T (&values)[chunks], uint column, uint base) const thread {
    if constexpr (chunks == 1) return simd_shuffle(values[0], ushort(base + column));
    const T asked = column < lanes ? values[0] : values[chunks - 1];
    return simd_broadcast(asked, ushort(column % lanes));
  }

  uint in_matrix(uint column) const thread { return column & (size - 1); }

  void read_diagonal(uint lane) thread {
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      const uint c = k * lanes + lane;
      diagonal[k] = a[in_matrix(c) * width + c];
    }
  }

  // The number of sweeps that were needed, at most `sweeps`.
  uint solve(thread const Rule& rule, uint sweeps, thread const Crew& crew) thread {
    for (uint sweep = 0; sweep < sweeps; ++sweep) {
      bool rotated = false;
      for (uint r = 1; r < size; ++r) rotated = round(rule, r, crew) || rotated;
      if (!rotated) return sweep;
    }
    return sweeps;
  }

  bool round(thread const Rule& rule, uint r, thread const Crew& crew) thread {
    const uint high = 1u << (31 - clz(r));
    float s[chunks], tau[chunks], next[chunks];
    bool wanted = false;
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      const uint column = k * lanes + crew.lane, other = column ^ r;
      const bool low = (column & high) == 0;
      const float g = a[in_matrix(low ? column : other) * width + (low ? other : column)];
      const float theirs = partner(diagonal, k, r);
      const float first = low ? diagonal[k] : theirs, second = low ? theirs : diagonal[k];
      const bool wants = rule.wants(first, second, g);
      const Rotation turn = rotation(first, second, wants ? g : 1.0f);
      s[k] = wants ? turn.s : 0.0f;
      tau[k] = wants ? turn.tau : 0.0f;
      next[k] = wants ? diagonal[k] + (low ? -turn.shift : turn.shift) : diagonal[k];
      wanted = wanted || wants;
    }
    if (!simd_any(wanted)) return false;  // every simdgroup has found the same
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint k = 0; k < chunks; ++k) diagonal[k] = next[k];
    rotate_columns(s, tau, r, high, crew);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    rotate_rows(s, tau, r, high, crew);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return true;
  }

  void rotate_columns(thread const float (&s)[chunks], thread const float (&tau)[chunks], uint r,
                      uint high, thread const Crew& crew) thread {
    for (uint i = crew.simd; i < size; i += crew.simdgroups) {
      float values[chunks];
#pragma unroll
      for (uint k = 0; k < chunks; ++k) values[k] = a[i * width + k * lanes + crew.lane];
#pragma unroll
      for (uint k = 0; k < chunks; ++k) {
        const float sign = ((k * lanes + crew.lane) & high) == 0 ? 1.0f : -1.0f;
        const float y = partner(values, k, r);
        a[i * width + k * lanes + crew.lane] =
            values[k] - sign * s[k] * (y + sign * tau[k] * values[k]);
      }
    }
  }

  void rotate_rows(thread const float (&s)[chunks], thread const float (&tau)[chunks], uint r,
                   uint high, thread const Crew& crew) thread {
    const uint base = crew.lane & ~(size - 1);
    for (uint pair = crew.simd; pair < size / 2; pair += crew.simdgroups) {
      const uint p = (pair & (high - 1)) | ((pair & ~(high - 1)) << 1), q = p ^ r;
      const float row_s = of_column(s, p, base), row_tau = of_column(tau, p, base);
#pragma unroll
      for (uint k = 0; k < chunks; ++k) {
        const uint c = k * lanes + crew.lane, j = in_matrix(c);
        const bool on_p = row_s != 0.0f && j == p, on_q = row_s != 0.0f && j == q;
        const float x = a[p * width + c], y = a[q * width + c];
        const float new_x = x - row_s * (y + row_tau * x), new_y = y + row_s * (x - row_tau * y);
        a[p * width + c] = on_p ? diagonal[k] : on_q ? 0.0f : new_x;
        a[q * width + c] = on_q ? diagonal[k] : on_p ? 0.0f : new_y;
        const float v = vt[p * width + c], w = vt[q * width + c];
        vt[p * width + c] = v - row_s * (w + row_tau * v);
        vt[q * width + c] = w + row_s * (v - row_tau * w);
      }
    }
  }

  // How many of the first `count` diagonals of its matrix come before a lane's own in descending
  // order; of equal ones the first.
  void ranks(thread uint (&rank)[chunks], uint count, uint lane) const thread {
    const uint base = lane & ~(size - 1);
#pragma unroll
    for (uint k = 0; k < chunks; ++k) rank[k] = 0;
    for (uint other = 0; other < count; ++other) {
      const float value = of_column(diagonal, other, base);
#pragma unroll
      for (uint k = 0; k < chunks; ++k) {
        const uint j = in_matrix(k * lanes + lane);
        rank[k] += value > diagonal[k] || (value == diagonal[k] && other < j) ? 1 : 0;
      }
    }
  }
};

struct Eigh {
  long n;
  long size;  // a power of two, at least n
  long matrices;
  long lower;
  Strides a;
  Strides v;
};

// Eigenvalues in ascending order and V, of matrices of up to 32 * `chunks` columns: 32 / size of
// them in a simdgroup, or a threadgroup a matrix. Only the named triangle is read.
template <uint chunks>
[[kernel]] void eigh_tile(device const float* a [[buffer(0)]], device float* w [[buffer(1)]],
                          device float* v [[buffer(2)]], device int* info [[buffer(3)]],
                          constant Eigh& shape [[buffer(4)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simd [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]]) {
  constexpr uint width = chunks * lanes;
  threadgroup float tile[width * width];
  threadgroup float vectors[width * width];
  const uint n = uint(shape.n), size = chunks == 1 ? uint(shape.size) : width;
  const uint matrix = group * (width / size) + lane / size;
  const bool there = matrix < shape.matrices;
  const long across = shape.lower != 0 ? shape.a.column : shape.a.row;
  const long down = shape.lower != 0 ? shape.a.row : shape.a.column;
  a += there ? matrix * shape.a.matrix : 0;
  float largest = 0.0f;
  bool finite = true;
  for (uint i = 0; i < n; ++i)
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      const uint j = (k * lanes + lane) & (size - 1);
      const float value = there && j <= i ? a[i * down + j * across] : 0.0f;
      finite = finite && (as_type<uint>(value) >> 23 & 255) != 255;
      largest = max(largest, fabs(value));
    }
  // Over the lanes of one matrix.
  for (uint step = 1; step < min(size, lanes); step *= 2) {
    largest = max(largest, simd_shuffle_xor(largest, ushort(step)));
    finite = simd_shuffle_xor(uint(finite), ushort(step)) != 0 && finite;
  }
  const float scale = power_of_two_scale(largest);
  float squares = 0.0f;
  for (uint i = 0; i < size; ++i)
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      const uint c = k * lanes + lane, j = c & (size - 1);
      const bool inside = there && max(i, j) < n && finite;
      const float value = inside ? a[max(i, j) * down + min(i, j) * across] * scale : 0.0f;
      squares += value * value;
      if (i % simdgroups == simd) {
        tile[i * width + c] = value;
        vectors[i * width + c] = i == j ? 1.0f : 0.0f;
      }
    }
  for (uint step = 1; step < min(size, lanes); step *= 2)
    squares += simd_shuffle_xor(squares, ushort(step));
  threadgroup_barrier(mem_flags::mem_threadgroup);

  Symmetric<chunks> symmetric{tile, vectors, size};
  symmetric.read_diagonal(lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const Rule rule{0.5f * epsilon * precise::sqrt(squares), 0.0f, 0.0f};
  const uint sweeps = symmetric.solve(rule, most_sweeps, Crew{lane, simd, simdgroups});

  uint rank[chunks];
  symmetric.ranks(rank, n, lane);
#pragma unroll
  for (uint k = 0; k < chunks; ++k) {
    const uint j = (k * lanes + lane) & (size - 1);
    if (there && j < n && simd == 0)
      w[matrix * n + n - 1 - rank[k]] = finite ? symmetric.diagonal[k] / scale : NAN;
  }
  for (uint j = simd; j < n; j += simdgroups) {
    // Row j of V' goes to the column that the rank of eigenvalue j says.
    const uint place = symmetric.of_column(rank, j, lane & ~(size - 1));
#pragma unroll
    for (uint k = 0; k < chunks; ++k) {
      const uint c = k * lanes + lane, i = c & (size - 1);
      if (there && i < n)
        v[shape.v.at(matrix, i, n - 1 - place)] = finite ? vectors[j * width + c] : NAN;
    }
  }
  if (there && simd == 0 && (lane & (size - 1)) == 0)
    info[matrix] = !finite ? -1 : sweeps < most_sweeps ? 0 : int(n);
}

template [[host_name("eigh_simdgroup")]] [[kernel]] decltype(eigh_tile<1>) eigh_tile<1>;
template [[host_name("eigh_group")]] [[kernel]] decltype(eigh_tile<2>) eigh_tile<2>;

// --- one-sided: a lane has a column --------------------------------------------------------------

struct Svd {
  long n;
  long size;  // a power of two, at least n
  long matrices;
  Strides x;
  Strides w;
  Strides j;
};

// The products of a lane's column with itself and with that of lane ^ r.
inline float2 products(threadgroup const float* column, uint n, uint r) {
  float2 even = 0.0f, odd = 0.0f;
  uint i = 0;
  for (; i + 2 <= n; i += 2) {
    const float x = column[i * lanes], y = column[(i + 1) * lanes];
    even += x * float2(x, simd_shuffle_xor(x, ushort(r)));
    odd += y * float2(y, simd_shuffle_xor(y, ushort(r)));
  }
  if (i < n) {
    const float x = column[i * lanes];
    even += x * float2(x, simd_shuffle_xor(x, ushort(r)));
  }
  return even + odd;
}

inline void rotate_column(threadgroup float* column, uint n, uint r, float s, float tau) {
  for (uint i = 0; i < n; ++i) {
    const float x = column[i * lanes];
    const float y = simd_shuffle_xor(x, ushort(r));
    column[i * lanes] = x - s * (y + tau * x);
  }
}

// X J = W S with orthogonal J and the columns of W normalised, for X of up to 32 rows and columns;
// columns of W for singular values that are zero but for rounding are zero. 32 / size matrices
// stand side by side in a simdgroup, and no lane touches another's column but by shuffles.
[[kernel]] void svd_columns(device const float* x [[buffer(0)]], device float* w [[buffer(1)]],
                            device float* values [[buffer(2)]], device float* j [[buffer(3)]],
                            device int* info [[buffer(4)]], constant Svd& shape [[buffer(5)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float columns[lanes * lanes];
  threadgroup float turned[lanes * lanes];
  threadgroup float* column = columns + lane;
  threadgroup float* turn_column = turned + lane;
  const uint n = uint(shape.n), size = uint(shape.size), own = lane & (size - 1);
  const uint matrix = group * (lanes / size) + lane / size;
  const bool there = matrix < shape.matrices && own < n;
  for (uint i = 0; i < n; ++i) {
    column[i * lanes] = there ? x[shape.x.at(matrix, i, own)] : 0.0f;
    turn_column[i * lanes] = i == own ? 1.0f : 0.0f;
  }
  uint sweep = 0;
  for (; sweep < most_sweeps; ++sweep) {
    float top = products(column, n, 0).x;
    for (uint step = 1; step < size; step *= 2) top = max(top, simd_shuffle_xor(top, ushort(step)));
    bool rotated = false;
    for (uint r = 1; r < size; ++r) {
      const float2 sums = products(column, n, r);
      const float mine = sums.x, theirs = simd_shuffle_xor(mine, ushort(r)), g = sums.y;
      const bool wants =
          fabs(g) > 4.0f * epsilon * precise::sqrt(max(mine, theirs)) * precise::sqrt(top) &&
          min(mine, theirs) > 16.0f * epsilon * epsilon * top;
      if (!simd_any(wants)) continue;
      rotated = true;
      const bool low = (own & (1u << (31 - clz(r)))) == 0;
      const Rotation turn = rotation(low ? mine : theirs, low ? theirs : mine, wants ? g : 1.0f);
      const float s = wants ? (low ? turn.s : -turn.s) : 0.0f;
      const float tau = wants ? (low ? turn.tau : -turn.tau) : 0.0f;
      rotate_column(column, n, r, s, tau);
      rotate_column(turn_column, n, r, s, tau);
    }
    if (!rotated) break;
  }

  const float value = precise::sqrt(products(column, n, 0).x);
  float largest = value;
  uint rank = 0;
  for (uint other = 0; other < size; ++other) {
    const float theirs = simd_shuffle(value, ushort((lane & ~(size - 1)) + other));
    largest = max(largest, theirs);
    rank += theirs > value || (theirs == value && other < own) ? 1 : 0;
  }
  if (!there) return;
  const float inverse = value > 4.0f * epsilon * largest ? 1.0f / value : 0.0f;
  values[matrix * n + rank] = value;
  for (uint i = 0; i < n; ++i) {
    w[shape.w.at(matrix, i, rank)] = column[i * lanes] * inverse;
    j[shape.j.at(matrix, i, rank)] = turn_column[i * lanes];
  }
  if (own == 0) info[matrix] = sweep < most_sweeps ? 0 : int(n);
}

// --- blocks of a large matrix --------------------------------------------------------------------

struct Round {
  long blocks;  // of 32 rows, an even number
  long round;
  long inner;  // columns that a Gram matrix sums over
  Strides m;
};

// The two blocks of a pair: every two blocks meet once in `blocks` - 1 rounds.
inline uint2 pair_of(uint pair, uint round, uint blocks) {
  const uint others = blocks - 1;
  const uint p = pair == 0 ? others : (round + pair) % others;
  const uint q = pair == 0 ? round : (round + others - pair) % others;
  return uint2(min(p, q), max(p, q));
}

inline uint row_of(uint2 blocks, uint i) {
  return (i < half_block ? blocks.x : blocks.y) * half_block + i % half_block;
}

// Two sweeps over the block pair's symmetric matrix, then J' with rows in descending order of the
// diagonal. `busy` counts the pairs that are not done; `turned` says whether J is not the identity.
inline void turn_block(thread Symmetric<2>& symmetric, thread const Rule& rule, bool done,
                       device float* jt, device int* busy, device int* turned,
                       thread const Crew& crew) {
  const uint sweeps = done ? 0 : symmetric.solve(rule, 2, crew);
  uint rank[2];
  symmetric.ranks(rank, block, crew.lane);
  const bool moved = simd_any(rank[0] != crew.lane || rank[1] != crew.lane + lanes);
  if (crew.simd == 0 && crew.lane == 0) {
    *turned = sweeps > 0 || moved ? 1 : 0;
    if (!done) *busy = 1;
  }
  for (uint i = crew.simd; i < block; i += crew.simdgroups) {
    const uint place = symmetric.of_column(rank, i, 0);
    for (uint k = 0; k < 2; ++k)
      jt[place * block + k * lanes + crew.lane] = symmetric.vt[i * block + k * lanes + crew.lane];
  }
}

// Whether a pair has nothing left to do, seen by every simdgroup alike.
inline bool is_done(threadgroup const float* a, float limit, bool relative, float dead, uint lane) {
  bool done = true;
  for (uint i = 0; i < block; ++i)
#pragma unroll
    for (uint k = 0; k < 2; ++k) {
      const uint c = k * lanes + lane;
      const float g = fabs(a[i * block + c]);
      const float x = a[i * block + i], y = a[c * block + c];
      const float least = relative ? limit * precise::sqrt(max(x, y)) : limit;
      done = done && (i == c || g <= least || (relative && min(x, y) <= dead));
    }
  return simd_all(done);
}

// M = [A, V'] of a symmetric A. norms: one a matrix, of A.
[[kernel]] void eigh_block(device const float* m [[buffer(0)]], device float* jt [[buffer(1)]],
                           device const float* norms [[buffer(2)]], device int* busy [[buffer(3)]],
                           device int* turned [[buffer(4)]], constant Round& shape [[buffer(5)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint simd [[simdgroup_index_in_threadgroup]],
                           uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float tile[block * block];
  threadgroup float vectors[block * block];
  const uint2 blocks = pair_of(group.x, uint(shape.round), uint(shape.blocks));
  for (uint i = simd; i < block; i += simdgroups)
#pragma unroll
    for (uint k = 0; k < 2; ++k) {
      const uint c = k * lanes + lane;
      tile[i * block + c] =
          m[shape.m.at(group.y, row_of(blocks, max(i, c)), row_of(blocks, min(i, c)))];
      vectors[i * block + c] = i == c ? 1.0f : 0.0f;
    }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float limit = epsilon * norms[group.y];
  Symmetric<2> symmetric{tile, vectors, block};
  symmetric.read_diagonal(lane);
  const bool done = is_done(tile, limit, false, 0.0f, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint index = group.y * (uint(shape.blocks) / 2) + group.x;
  turn_block(symmetric, Rule{limit, 0.0f, 0.0f}, done, jt + index * block * block, busy + index,
             turned + index, Crew{lane, simd, simdgroups});
}

// M = [X', J'] of a matrix X, whose columns are rows here: the Gram matrix of 64 of them.
// norms: the square of the largest column's norm.
[[kernel]] void svd_block(device const float* m [[buffer(0)]], device float* jt [[buffer(1)]],
                          device const float* norms [[buffer(2)]], device int* busy [[buffer(3)]],
                          device int* turned [[buffer(4)]], constant Round& shape [[buffer(5)]],
                          uint2 group [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simd [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float tile[block * block];
  threadgroup float vectors[block * block];
  const uint2 blocks = pair_of(group.x, uint(shape.round), uint(shape.blocks));
  device const float* rows = m + group.y * shape.m.matrix;
  const uint stride = uint(shape.m.row);
  for (uint i = 8 * simd; i < block; i += 8 * simdgroups) {
    simdgroup_float8x8 totals[8];
#pragma unroll
    for (uint j = 0; j < 8; ++j) totals[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint start = 0; start < shape.inner; start += 64) {
      simdgroup_float8x8 sums[8];
#pragma unroll
      for (uint j = 0; j < 8; ++j) sums[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      for (uint k = start; k < min(start + 64, uint(shape.inner)); k += 8) {
        simdgroup_float8x8 left, right;
        simdgroup_load(left, rows + row_of(blocks, i) * stride + k, stride);
#pragma unroll
        for (uint j = 0; j < 8; ++j) {
          simdgroup_load(right, rows + row_of(blocks, 8 * j) * stride + k, stride, ulong2(0), true);
          simdgroup_multiply_accumulate(sums[j], left, right, sums[j]);
        }
      }
#pragma unroll
      for (uint j = 0; j < 8; ++j) totals[j].thread_elements() += sums[j].thread_elements();
    }
#pragma unroll
    for (uint j = 0; j < 8; ++j) simdgroup_store(totals[j], tile + i * block + 8 * j, block);
  }
  for (uint i = simd; i < block; i += simdgroups)
#pragma unroll
    for (uint k = 0; k < 2; ++k)
      vectors[i * block + k * lanes + lane] = i == k * lanes + lane ? 1.0f : 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const float top = norms[group.y], dead = 16.0f * epsilon * epsilon * top;
  Symmetric<2> symmetric{tile, vectors, block};
  symmetric.read_diagonal(lane);
  const float limit = precise::sqrt(float(shape.inner)) * epsilon * precise::sqrt(top);
  const bool done = is_done(tile, limit, true, dead, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint index = group.y * (uint(shape.blocks) / 2) + group.x;
  turn_block(symmetric, Rule{0.0f, epsilon, dead}, done, jt + index * block * block, busy + index,
             turned + index, Crew{lane, simd, simdgroups});
}

// The rows of each pair of blocks become J' times them, 32 columns a threadgroup of four
// simdgroups. With rows and columns exchanged in the layout, columns do.
[[kernel]] void rotate_blocks(device float* m [[buffer(0)]], device const float* jt [[buffer(1)]],
                              device const int* turned [[buffer(2)]],
                              constant Round& shape [[buffer(3)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint in_group [[thread_index_in_threadgroup]],
                              uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float tile[block * lanes];
  const uint index = group.z * (uint(shape.blocks) / 2) + group.y;
  if (turned[index] == 0) return;
  const uint2 blocks = pair_of(group.y, uint(shape.round), uint(shape.blocks));
  const bool by_columns = shape.m.row == 1;
  jt += index * block * block;
  // 32 numbers side by side in memory: of a column, or of a row.
  const uint first = group.x * lanes, lane = in_group % lanes;
  m += group.z * shape.m.matrix;
  for (uint at = simd; at < block; at += 4) {
    if (by_columns) {
      const uint i = at % 2 * lanes, c = at / 2;
      device const float* from = m + (first + c) * shape.m.column + row_of(blocks, i);
      tile[(i + lane) * lanes + c] = from[lane];
    } else {
      device const float* from = m + row_of(blocks, at) * shape.m.row + first;
      tile[at * lanes + lane] = from[lane];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_float8x8 results[2][4];
#pragma unroll
  for (uint i = 0; i < 2; ++i)
#pragma unroll
    for (uint j = 0; j < 4; ++j) results[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k = 0; k < block; k += 8) {
    simdgroup_float8x8 left[2], right[4];
#pragma unroll
    for (uint i = 0; i < 2; ++i)
      simdgroup_load(left[i], jt + (16 * simd + 8 * i) * block + k, block);
#pragma unroll
    for (uint j = 0; j < 4; ++j) simdgroup_load(right[j], tile + k * lanes + 8 * j, lanes);
#pragma unroll
    for (uint i = 0; i < 2; ++i)
#pragma unroll
      for (uint j = 0; j < 4; ++j)
        simdgroup_multiply_accumulate(results[i][j], left[i], right[j], results[i][j]);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
  for (uint i = 0; i < 2; ++i)
#pragma unroll
    for (uint j = 0; j < 4; ++j)
      simdgroup_store(results[i][j], tile + (16 * simd + 8 * i) * lanes + 8 * j, lanes);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint at = simd; at < block; at += 4) {
    if (by_columns) {
      const uint i = at % 2 * lanes, c = at / 2;
      device float* to = m + (first + c) * shape.m.column + row_of(blocks, i);
      to[lane] = tile[(i + lane) * lanes + c];
    } else {
      device float* to = m + row_of(blocks, at) * shape.m.row + first;
      to[lane] = tile[at * lanes + lane];
    }
  }
}

// --- the size of matrices ------------------------------------------------------------------------

struct Measure {
  long rows;
  long columns;
  long lower;  // only the lower triangle is read
  Strides a;
};

// A threadgroup a matrix: the power of two that brings its largest number to about 1, and -1 in
// info where a number is not finite.
[[kernel]] void measure(device const float* a [[buffer(0)]], device float* scales [[buffer(1)]],
                        device int* info [[buffer(2)]], constant Measure& shape [[buffer(3)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[lanes];
  float largest = 0.0f;
  for (uint i = simd; i < shape.rows; i += simdgroups)
    for (uint j = lane; j < shape.columns; j += lanes)
      if (shape.lower == 0 || j <= i) {
        const float value = a[shape.a.at(group, i, j)];
        const bool finite = (as_type<uint>(value) >> 23 & 255) != 255;
        largest = max(largest, finite ? fabs(value) : INFINITY);
      }
  largest = simd_max(largest);
  if (lane == 0) partial[simd] = largest;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  largest = simd_max(lane < simdgroups ? partial[lane] : 0.0f);
  if (simd == 0 && lane == 0) {
    scales[group] = power_of_two_scale(largest);
    info[group] = largest == INFINITY ? -1 : 0;
  }
}
