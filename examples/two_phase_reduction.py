"""The sum of a large tensor in two launches: one partial sum a threadgroup, then the sum of these.

    python examples/two_phase_reduction.py

Nothing orders the threadgroups of one launch, so no threadgroup can add up what the others wrote.
Launches on one stream are in order: the second one sees everything the first one wrote.
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

kernel void sums(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                 constant uint& size [[buffer(2)]], uint i [[thread_position_in_grid]],
                 uint all [[threads_per_grid]], uint group [[threadgroup_position_in_grid]],
                 uint lane [[thread_index_in_simdgroup]],
                 uint simd [[simdgroup_index_in_threadgroup]],
                 uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  float sum = 0;
  for (uint at = i; at < size; at += all) sum += x[at];
  sum = simd_sum(sum);
  if (lane == 0) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0) {
    sum = simd_sum(lane < simds ? partial[lane] : 0.0f);
    if (lane == 0) out[group] = sum;
  }
}
"""


def total(lib: Any, x: torch.Tensor, groups: int = 64) -> torch.Tensor:
    partial = torch.empty(groups, device=x.device)
    result = torch.empty(1, device=x.device)
    lib.sums(x, partial, x.numel(), threads=groups * 256, group_size=256)
    lib.sums(partial, result, groups, threads=groups, group_size=groups)
    return result[0]


def main() -> None:
    lib = compile_shader(SOURCE)
    for size in (1, 31, 33, 16383, 1_000_003):
        x = torch.rand(size, device=DEVICE)
        found, again = total(lib, x), total(lib, x)
        torch.testing.assert_close(found.cpu().double(), x.cpu().double().sum(), rtol=1e-5, atol=0)
        if not torch.equal(found, again):
            raise SystemExit("two runs differ, although every sum has a fixed order")
        print(f"{size:8} elements: {found.item():.3f}, as float64 and as the run before")


if __name__ == "__main__":
    main()
