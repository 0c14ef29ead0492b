"""C = A B with simdgroup_matrix: 8x8 tiles that the 32 lanes of a simdgroup hold together.

    python examples/simdgroup_matmul.py

A simdgroup computes a block of 16 x 16: four accumulators, so that each tile that is loaded is used
twice. Sizes need not be multiples of 8: edges go through zeroed threadgroup memory.
"""

from __future__ import annotations

from typing import Any

import torch

import anymetal

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
compile_shader = torch.mps.compile_shader if DEVICE == "mps" else anymetal.compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

// An 8x8 tile at (row, column) of a rows x columns matrix; what lies outside is 0.
inline simdgroup_float8x8 load(device const float* x, uint rows, uint columns, uint row,
                               uint column, threadgroup float* edge, uint lane) {
  simdgroup_float8x8 tile;
  if (row + 8 <= rows && column + 8 <= columns) {
    simdgroup_load(tile, x, columns, ulong2(column, row));
    return tile;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);  // the last tile has been read
  for (uint i = lane; i < 64; i += 32) {
    uint r = row + i / 8, c = column + i % 8;
    edge[i] = r < rows && c < columns ? x[ulong(r) * columns + c] : 0.0f;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_load(tile, edge, 8);
  return tile;
}

kernel void matmul(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                   device float* c [[buffer(2)]], constant uint& m [[buffer(3)]],
                   constant uint& n [[buffer(4)]], constant uint& k [[buffer(5)]],
                   uint2 group [[threadgroup_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float edge[64];
  uint row = 16 * group.y, column = 16 * group.x;
  simdgroup_float8x8 sums[2][2];
  for (uint i = 0; i < 2; i++)
    for (uint j = 0; j < 2; j++) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

  for (uint step = 0; step < k; step += 8) {
    simdgroup_float8x8 left[2], right[2];
    for (uint i = 0; i < 2; i++) {
      left[i] = load(a, m, k, row + 8 * i, step, edge, lane);
      right[i] = load(b, k, n, step, column + 8 * i, edge, lane);
    }
    for (uint i = 0; i < 2; i++)
      for (uint j = 0; j < 2; j++)
        simdgroup_multiply_accumulate(sums[i][j], left[i], right[j], sums[i][j]);
  }

  for (uint i = 0; i < 2; i++)
    for (uint j = 0; j < 2; j++) {
      simdgroup_barrier(mem_flags::mem_threadgroup);
      simdgroup_store(sums[i][j], edge, 8);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      for (uint e = lane; e < 64; e += 32) {
        uint r = row + 8 * i + e / 8, s = column + 8 * j + e % 8;
        if (r < m && s < n) c[ulong(r) * n + s] = edge[e];
      }
    }
}
"""


def matmul(lib: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device)
    groups = ((n + 15) // 16, (m + 15) // 16)
    lib.matmul(
        *(a.contiguous(), b.contiguous(), c, m, n, k),
        threads=(32 * groups[0], groups[1]),
        group_size=(32, 1),
    )
    return c


def main() -> None:
    lib = compile_shader(SOURCE)
    for m, k, n in [(1, 1, 1), (8, 8, 8), (16, 64, 32), (33, 17, 31), (50, 129, 70)]:
        a, b = torch.randn(m, k, device=DEVICE), torch.randn(k, n, device=DEVICE)
        wanted = a.cpu().double() @ b.cpu().double()
        found = matmul(lib, a, b).cpu().double()
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * k**0.5)
        print(f"{m} x {k} x {n}: agrees with float64")


if __name__ == "__main__":
    main()
