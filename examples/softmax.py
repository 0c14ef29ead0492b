"""Softmax over rows of any length, reading each row once before it is written: online softmax.

    python examples/softmax.py

A thread keeps the largest value so far and the sum of exp(value - largest). Two such pairs are
merged by scaling the sum with the smaller maximum: first inside a simdgroup, then across them.
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

// exp(value - largest), where both may be -infinity.
inline float scaled(float value, float largest) {
  return value == -INFINITY ? 0.0f : precise::exp(value - largest);
}

kernel void softmax(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    constant uint& columns [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint in_group [[thread_index_in_threadgroup]],
                    uint threads [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]],
                    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float largest_of[32];
  threadgroup float sum_of[32];
  x += ulong(row) * columns;
  y += ulong(row) * columns;

  float largest = -INFINITY, sum = 0;
  for (uint i = in_group; i < columns; i += threads) {
    float value = x[i];
    float now = max(largest, value);
    sum = sum * scaled(largest, now) + scaled(value, now);
    largest = now;
  }

  float of_simd = simd_max(largest);
  sum = simd_sum(sum * scaled(largest, of_simd));
  if (lane == 0) {
    largest_of[simd] = of_simd;
    sum_of[simd] = sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  largest = lane < simds ? largest_of[lane] : -INFINITY;
  float of_row = simd_max(largest);
  sum = simd_sum(lane < simds ? sum_of[lane] * scaled(largest, of_row) : 0.0f);

  for (uint i = in_group; i < columns; i += threads) y[i] = scaled(x[i], of_row) / sum;
}
"""


def softmax(lib: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    columns = x.shape[-1]
    y = torch.empty_like(x)
    group = min(512, (columns + 31) // 32 * 32)
    lib.softmax(x, y, columns, threads=x.numel() // columns * group, group_size=group)
    return y


def main() -> None:
    lib = compile_shader(SOURCE)
    inputs = [torch.randn(shape) for shape in [(1, 1), (3, 31), (2, 32), (4, 33), (2, 4099)]]
    inputs.append(1e4 * torch.randn(3, 100))  # exp(1e4) would be infinite
    inputs.append(torch.full((2, 70), -7.0))  # all equal
    masked = torch.randn(2, 257)
    masked[:, 5:250] = -torch.inf  # what attention does to a causal row
    inputs.append(masked)
    for x in inputs:
        wanted = torch.softmax(x.double(), -1)
        found = softmax(lib, x.to(DEVICE)).cpu().double()
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)
    print(f"{len(inputs)} inputs agree with float64: large, equal and masked rows among them")


if __name__ == "__main__":
    main()
