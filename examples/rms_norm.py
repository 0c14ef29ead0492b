"""RMSNorm: a threadgroup for each row, a sum over it in two steps, any length of row.

    python examples/rms_norm.py

y = x / sqrt(mean(x^2) + eps) * weight. `simd_sum` adds up the 32 lanes of a simdgroup, threadgroup
memory carries the sums of the simdgroups, and one barrier stands between writing and reading them.
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

template <typename T>
kernel void rms_norm(device const T* x [[buffer(0)]], device const T* weight [[buffer(1)]],
                     device T* y [[buffer(2)]], constant uint& columns [[buffer(3)]],
                     constant float& eps [[buffer(4)]],
                     uint row [[threadgroup_position_in_grid]],
                     uint in_group [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]],
                     uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  x += ulong(row) * columns;
  y += ulong(row) * columns;

  float sum = 0;
  for (uint i = in_group; i < columns; i += threads) sum += float(x[i]) * float(x[i]);
  sum = simd_sum(sum);
  if (lane == 0) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // Every simdgroup adds up the partial sums for itself: no second barrier, no slot to reuse.
  float total = simd_sum(lane < simds ? partial[lane] : 0.0f);
  float scale = precise::rsqrt(total / columns + eps);
  for (uint i = in_group; i < columns; i += threads)
    y[i] = T(float(x[i]) * scale * float(weight[i]));
}

#define INSTANCE(T) \\
  template [[host_name("rms_norm_" #T)]] kernel void rms_norm<T>( \\
      device const T*, device const T*, device T*, constant uint&, constant float&, \\
      uint, uint, uint, uint, uint, uint)

INSTANCE(float);
INSTANCE(half);
"""

NAMES = {torch.float32: "float", torch.float16: "half"}
ROUNDING = {torch.float32: 2e-6, torch.float16: 1e-3}


def rms_norm(lib: Any, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x = x.contiguous()
    columns = x.shape[-1]
    rows = x.numel() // columns
    y = torch.empty_like(x)
    group = min(1024, (columns + 31) // 32 * 32)  # whole simdgroups
    kernel = getattr(lib, f"rms_norm_{NAMES[x.dtype]}")
    kernel(x, weight, y, columns, eps, threads=rows * group, group_size=group)
    return y


def main() -> None:
    lib = compile_shader(SOURCE)
    for dtype, bound in ROUNDING.items():
        for shape in [(1, 1), (3, 31), (2, 2, 32), (5, 33), (2, 4099)]:
            x = torch.randn(shape, dtype=dtype, device=DEVICE)
            weight = torch.rand(shape[-1], dtype=dtype, device=DEVICE) + 0.5
            exact = x.cpu().double()
            exact = exact * (exact.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
            wanted = exact * weight.cpu().double()
            found = rms_norm(lib, x, weight).cpu().double()
            torch.testing.assert_close(found, wanted, rtol=bound, atol=bound)
        print(f"{dtype}: rows of 1 to 4099 elements agree with float64")


if __name__ == "__main__":
    main()
