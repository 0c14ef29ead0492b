// The kernels of mistakes.py: small, and called in wrong and in right ways.
#include <metal_stdlib>
using namespace metal;

struct Conv {
  int rows;
  int columns;
  float scale;
  int padding[10];
};

struct Row {
  float scale;
  uint row_stride;
};

// ---- Arguments

kernel void scale(device const float* x, device float* y, constant float& by, constant uint& n,
                  uint i [[thread_position_in_grid]]) {
  if (i < n) y[i] = x[i] * by;
}

kernel void scale_half(device const half* x, device half* y, constant half& by,
                       uint i [[thread_position_in_grid]]) {
  y[i] = x[i] * by;
}

kernel void widen(device const bfloat* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = float(x[i]);
}

kernel void take(device const float* x, device const int* at, device float* y,
                 uint i [[thread_position_in_grid]]) {
  y[i] = x[at[i] & 7];
}

kernel void count(device const float* x, device atomic_uint* counts,
                  uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&counts[x[i] > 0.0f], 1u, memory_order_relaxed);
}

kernel void masked(device const float* x, device const bool* mask, device float* y,
                   uint i [[thread_position_in_grid]]) {
  y[i] = mask[i] ? x[i] : 0.0f;
}

kernel void with_bias(device const float* x, device const float* bias, device float* y,
                      constant bool& has_bias, uint i [[thread_position_in_grid]]) {
  y[i] = has_bias ? x[i] + bias[i] : x[i];
}

kernel void sizes(device float* y, constant uint* dims, uint i [[thread_position_in_grid]]) {
  y[i] = dims[0] * dims[1];
}

kernel void weights(device float* y, constant float* w, uint i [[thread_position_in_grid]]) {
  y[i] = w[0] + w[1];
}

kernel void volume(device float* y, constant uint3& size, uint i [[thread_position_in_grid]]) {
  y[i] = size.x * size.y * size.z;
}

kernel void turn(device float* y, constant float3x3& by, uint i [[thread_position_in_grid]]) {
  y[i] = by[2].z;
}

kernel void corner(device float* y, constant int (&at)[3], uint i [[thread_position_in_grid]]) {
  y[i] = at[0] + at[1] + at[2];
}

kernel void pad(device float* y, constant Conv& conv, uint i [[thread_position_in_grid]]) {
  y[i] = conv.scale * conv.padding[9];
}

kernel void sum_of_two(constant array<device const float*, 2>& x, device float* y,
                       uint i [[thread_position_in_grid]]) {
  y[i] = x[0][i] + x[1][i];
}

kernel void with_gap(device const float* x [[buffer(0)]], device float* y [[buffer(2)]],
                     uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}

kernel void copy_bits(device const uint* x, device uint* y, uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}

kernel void copy_bytes(device const uchar* x, device uchar* y, uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}

kernel void bits_of_bfloat(device const ushort* x, device float* y,
                           uint i [[thread_position_in_grid]]) {
  y[i] = 2.0f * as_type<float>(uint(x[i]) << 16);
}

kernel void magnitude(device const float2* z, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = length(z[i]);
}

// ---- Layout

kernel void sum_rows(device const float* x, device float* y, constant uint& columns,
                     uint row [[thread_position_in_grid]]) {
  float sum = 0;
  for (uint k = 0; k < columns; ++k) sum += x[row * columns + k];
  y[row] = sum;
}

kernel void sum_strided_rows(device const float* x, device float* y, constant uint& columns,
                             constant Row& row, uint i [[thread_position_in_grid]]) {
  float sum = 0;
  for (uint k = 0; k < columns; ++k) sum += x[i * row.row_stride + k];
  y[i] = sum * row.scale;
}

kernel void red(device const float* pixels, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = pixels[3 * i];
}

kernel void negate(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = -x[i];
}

kernel void fill(device float* y, constant float& value, uint i [[thread_position_in_grid]]) {
  y[i] = value;
}

kernel void fill_rows(device float* y, constant float& value, constant uint& row_stride,
                      uint2 i [[thread_position_in_grid]]) {
  y[i.y * row_stride + i.x] = value;
}

kernel void scale_channels(device const float* x, device const float* by, device float* y,
                           constant uint& channels, uint i [[thread_position_in_grid]]) {
  y[i] = x[i] * by[i % channels];
}

// ---- The same memory twice

kernel void accumulate(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] += x[i];
}

kernel void negate_in_place(device float* x, uint i [[thread_position_in_grid]]) { x[i] = -x[i]; }

kernel void both(device const float* x, device float* doubled, device float* sums,
                 uint i [[thread_position_in_grid]]) {
  doubled[i] = 2.0f * x[i];
  sums[i] = doubled[i] + x[i];
}

kernel void two(device const float* x, device float* sines, device float* cosines,
                uint i [[thread_position_in_grid]]) {
  sines[i] = sin(x[i]);
  cosines[i] = cos(x[i]);
}

kernel void reverse(device const float* x, device float* y, uint i [[thread_index_in_threadgroup]],
                    uint n [[threads_per_threadgroup]]) {
  float value = x[n - 1 - i];
  threadgroup_barrier(mem_flags::mem_device);
  y[i] = value;
}

kernel void shift(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = x[i + 1];
}

kernel void scatter(device const float* x, device const int* at, device float* y,
                    uint i [[thread_position_in_grid]]) {
  y[at[i]] = x[i];
}

kernel void square(device const float* a, device float* c, constant uint& n,
                   uint2 at [[thread_position_in_grid]]) {
  float sum = 0;
  for (uint k = 0; k < n; ++k) sum += a[at.y * n + k] * a[k * n + at.x];
  c[at.y * n + at.x] = sum;
}

kernel void negate_knowingly(device const float* x, device float* y,
                             uint i [[thread_position_in_grid]]) {
  // anymetal: allow(aliasing) each thread reads its element before it writes it
  y[i] = -x[i];
}

// ---- Inside the kernel

kernel void sum_unset(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  float sum;
  for (uint k = 0; k < 4; ++k) sum += x[4 * i + k];
  y[i] = sum;
}

kernel void sum_set(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  float sum = 0;
  for (uint k = 0; k < 4; ++k) sum += x[4 * i + k];
  y[i] = sum;
}

kernel void one_branch(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  float value;
  if (x[i] > 0) value = x[i];
  y[i] = value;
}

kernel void both_branches(device const float* x, device float* y,
                          uint i [[thread_position_in_grid]]) {
  float value;
  if (x[i] > 0)
    value = x[i];
  else
    value = 0;
  y[i] = value;
}

kernel void copy_vectors(device const float4* x, device float4* y,
                         uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}

kernel void copy_half_vectors(device const half4* x, device half4* y,
                              uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}

kernel void double_vectors(device const float4* x, device float4* y,
                           uint i [[thread_position_in_grid]]) {
  y[i] = 2.0f * x[i];
}

inline int place(int row, int column, int columns) { return row * columns + column; }
inline long long_place(int row, int column, int columns) { return long(row) * columns + column; }

kernel void mark(device float* y, constant int& row, constant int& columns,
                 uint i [[thread_position_in_grid]]) {
  int at = place(row, i, columns);
  if (at >= 0 && at < 8) y[at] = 1;
}

kernel void mark_far(device float* y, constant int& row, constant int& columns,
                     uint i [[thread_position_in_grid]]) {
  long at = long_place(row, i, columns);
  if (at >= 0 && at < 8) y[at] = 1;
}

kernel void mark_sum(device float* y, constant int& first, constant int& second,
                     uint i [[thread_position_in_grid]]) {
  int at = first + second;
  if (at >= 0 && at < 8) y[at] = 1;
}

kernel void read_lane(device const float* x, device float* y, constant uint& lane,
                      uint i [[thread_position_in_grid]]) {
  y[i] = simd_shuffle(x[i], ushort(lane));
}

kernel void butterfly(device const float* x, device float* y, constant uint& mask,
                      uint i [[thread_position_in_grid]]) {
  y[i] = x[i] + simd_shuffle_xor(x[i], ushort(mask));
}

kernel void next_lane(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = x[i] + simd_shuffle_down(x[i], 1);
}

kernel void read_quad(device const float* x, device float* y, constant uint& lane,
                      uint i [[thread_position_in_grid]]) {
  y[i] = quad_shuffle(x[i], ushort(lane));
}

kernel void broadcast(device const float* x, device float* y, constant uint& n,
                      uint i [[thread_position_in_grid]]) {
  y[i] = 0;
  if (i < n) y[i] = simd_broadcast(x[i], 31);
}

kernel void guarded(device const float* x, device float* y, constant uint& n,
                    uint i [[thread_index_in_threadgroup]]) {
  threadgroup float tile[64];
  tile[i] = x[i];
  if (i < n) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = tile[n - 1 - i];
  }
}

kernel void rounds(device const float* x, device float* y, constant uint& n,
                   uint i [[thread_index_in_threadgroup]]) {
  float sum = 0;
  for (uint k = i; k < n; k += 64) {
    threadgroup_barrier(mem_flags::mem_none);
    sum += x[k];
  }
  y[i] = sum;
}

kernel void otherwise(device const float* x, device float* y, constant uint& n,
                      uint i [[thread_index_in_threadgroup]]) {
  if (i < n)
    y[i] = x[i];
  else
    threadgroup_barrier(mem_flags::mem_none);
}

kernel void returns(device const float* x, device float* y, constant uint& n,
                    uint i [[thread_index_in_threadgroup]]) {
  if (i >= n) return;
  threadgroup_barrier(mem_flags::mem_none);
  y[i] = x[i];
}

kernel void divide(device const int* x, device int* y, constant int& n,
                   uint i [[thread_position_in_grid]]) {
  y[i] = x[i] / n;
}

kernel void divide_unused(device const int* x, device int* y, constant int& n,
                          uint i [[thread_position_in_grid]]) {
  int share = x[i] / n;
  y[i] = 1;
}

kernel void divide_vectors(device const int* x, device int* y, constant int& n,
                           uint i [[thread_position_in_grid]]) {
  int4 shares = int4(x[i]) / int4(1, 2, n, 4);
  y[i] = shares.z + shares.w;
}

kernel void remainder_of_vectors(device const int* x, device int* y, constant int& n,
                                 uint i [[thread_position_in_grid]]) {
  ushort2 rest = ushort2(x[i]);
  rest %= ushort2(n, 3);
  y[i] = rest.x;
}

kernel void divide_vectors_unused(device const int* x, device int* y, constant int& n,
                                  uint i [[thread_position_in_grid]]) {
  int2 shares = int2(x[i]) / int2(n, 3);
  y[i] = n == 0 ? shares.y : shares.x;
}

kernel void divide_guarded(device const int* x, device int* y, constant int& n,
                           uint i [[thread_position_in_grid]]) {
  int share = x[i] / n;
  if (n != 0)
    y[i] = share;
  else
    y[i] = 7;
}

kernel void divide_chosen(device const int* x, device int* y, constant int& n,
                          uint i [[thread_position_in_grid]]) {
  int rest = x[i] % n;
  bool some = n != 0;
  y[i] = (some ? rest : 0) + (some && rest == 1 ? 5 : 0);
}

kernel void divide_in_rounds(device const int* x, device int* y, constant int& n,
                             uint i [[thread_position_in_grid]]) {
  int sum = 0;
  for (int k = 0; k < 3; ++k) {
    int share = x[i] / n;
    if (n > 0) sum += share;
  }
  y[i] = sum;
}

kernel void divide_for_some(device const int* x, device int* y, constant int& n,
                            uint i [[thread_position_in_grid]]) {
  int share = x[i] / n;
  y[i] = 0;
  if (x[i] > 3) y[i] = share;
}

kernel void divide_to_choose(device const int* x, device int* y, constant int& n,
                             uint i [[thread_position_in_grid]]) {
  int share = x[i] / n, rest = x[i] % n;
  for (int k = 0; k < 2; ++k) {
    if (x[i] < 4) y[i] = k;
    else if (share > rest) y[i] = 2;
    else y[i] = 3;
  }
}
