// C = A B for row-major fp32 matrices, A m x k, B k x n, by simdgroup matrices.
//
// A threadgroup of four simdgroups computes a 64 x 64 tile of C from tiles of A and B in
// threadgroup memory; each simdgroup has a quarter of it, 16 accumulators of 8 x 8. m and n are
// multiples of 64, k of 16. Launch: threads = (n / 64 * 128, m / 64), group_size = (128, 1).
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

constant constexpr uint TILE = 64;   // rows and columns of C a threadgroup
constant constexpr uint PART = 32;   // of these, a simdgroup
constant constexpr uint DEPTH = 16;  // of k in a step
constant constexpr uint THREADS = 128;
// Rows are padded by 16 bytes, so that a column's elements are in different banks.
constant constexpr uint A_ROW = DEPTH + 4;
constant constexpr uint B_ROW = TILE + 4;

kernel void simdgroup_matmul(device const float* a [[buffer(0)]],
                             device const float* b [[buffer(1)]], device float* c [[buffer(2)]],
                             constant uint& m [[buffer(3)]], constant uint& n [[buffer(4)]],
                             constant uint& k [[buffer(5)]],
                             uint2 group [[threadgroup_position_in_grid]],
                             uint in_group [[thread_index_in_threadgroup]],
                             uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float4 a_tile[TILE * A_ROW / 4];
  threadgroup float4 b_tile[DEPTH * B_ROW / 4];
  const uint row = group.y * TILE, column = group.x * TILE;
  if (row >= m || column >= n) return;
  const uint part_row = simd / 2 * PART, part_column = simd % 2 * PART;
  threadgroup const float* a_part = (threadgroup const float*)a_tile + part_row * A_ROW;
  threadgroup const float* b_part = (threadgroup const float*)b_tile + part_column;

  simdgroup_float8x8 sums[PART / 8][PART / 8];
  for (uint i = 0; i < PART / 8; ++i)
    for (uint j = 0; j < PART / 8; ++j)
      sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

  for (uint start = 0; start < k; start += DEPTH) {
    // Four floats a thread and turn: four threads a row of A, sixteen a row of B.
    for (uint i = in_group; i < TILE * DEPTH / 4; i += THREADS) {
      const uint a_row = i / (DEPTH / 4), a_column = i % (DEPTH / 4) * 4;
      const uint b_row = i / (TILE / 4), b_column = i % (TILE / 4) * 4;
      a_tile[(a_row * A_ROW + a_column) / 4] =
          *(device const float4*)(a + (row + a_row) * k + start + a_column);
      b_tile[(b_row * B_ROW + b_column) / 4] =
          *(device const float4*)(b + (start + b_row) * n + column + b_column);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint step = 0; step < DEPTH; step += 8) {
      simdgroup_float8x8 left[PART / 8], right[PART / 8];
#pragma unroll
      for (uint i = 0; i < PART / 8; ++i) {
        simdgroup_load(left[i], a_part + i * 8 * A_ROW + step, A_ROW);
        simdgroup_load(right[i], b_part + step * B_ROW + i * 8, B_ROW);
      }
#pragma unroll
      for (uint i = 0; i < PART / 8; ++i)
#pragma unroll
        for (uint j = 0; j < PART / 8; ++j)
          simdgroup_multiply_accumulate(sums[i][j], left[i], right[j], sums[i][j]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  device float* c_part = c + (row + part_row) * n + column + part_column;
#pragma unroll
  for (uint i = 0; i < PART / 8; ++i)
#pragma unroll
    for (uint j = 0; j < PART / 8; ++j) simdgroup_store(sums[i][j], c_part + i * 8 * n + j * 8, n);
}
