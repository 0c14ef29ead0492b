"""A function that picks its own threadgroup size: measured once for each shape, kept on disk.

    python examples/autotune.py

A size that cannot be launched is left out, one whose result differs from the others' is an error.
`anymetal tune FILE.metal` sweeps a kernel from the command line, `anymetal tune OP` an operator.
"""

from __future__ import annotations

import torch

import anymetal

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
compile_shader = torch.mps.compile_shader if DEVICE == "mps" else anymetal.compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void row_sums(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                     constant uint& columns [[buffer(2)]],
                     uint row [[threadgroup_position_in_grid]],
                     uint in_group [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]],
                     uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  float sum = 0;
  for (uint i = in_group; i < columns; i += threads) sum += x[ulong(row) * columns + i];
  sum = simd_sum(sum);
  if (lane == 0) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0) {
    sum = simd_sum(lane < simds ? partial[lane] : 0.0f);
    if (lane == 0) out[row] = sum;
  }
}
"""


kernel = compile_shader(SOURCE).row_sums


@anymetal.autotune(space={"group_size": [64, 32, 128, 512]}, key=["x"], seconds=0.005)
def row_sums(x: torch.Tensor, *, group_size: int) -> torch.Tensor:
    out = torch.empty(x.shape[0], device=x.device)
    kernel(x, out, x.shape[1], threads=x.shape[0] * group_size, group_size=group_size)
    return out


def main() -> None:
    for columns in (100, 3000):
        x = torch.randn(64, columns, device=DEVICE)
        found = row_sums(x)  # the first time with this shape: every size is tried
        torch.testing.assert_close(
            found.cpu(), x.cpu().double().sum(1).float(), rtol=1e-4, atol=1e-3
        )
        chosen = row_sums.tuned(x)
        if chosen is None:
            raise SystemExit("nothing was tuned")
        print(f"rows of {columns}: {chosen.configuration}")
        torch.testing.assert_close(row_sums(x), found, rtol=0, atol=0)  # what is kept, used


if __name__ == "__main__":
    main()
