"""LayerNorm: why the variance is a second pass over the row.

    python examples/layer_norm.py

E[x^2] - E[x]^2 takes one pass and subtracts two large, nearly equal numbers: at mean 1000 and
deviation 1 nothing of the float32 result is left. Both kernels are here, and the error of each.
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

// The sum of `value` over the threadgroup, for each of its threads.
inline float sum_of_group(float value, threadgroup float* partial, uint lane, uint simd,
                          uint simds) {
  value = simd_sum(value);
  threadgroup_barrier(mem_flags::mem_threadgroup);  // the last sum has been read by everyone
  if (lane == 0) partial[simd] = value;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_sum(lane < simds ? partial[lane] : 0.0f);
}

template <bool TwoPasses>
kernel void layer_norm(device const float* x [[buffer(0)]],
                       device const float* weight [[buffer(1)]],
                       device const float* bias [[buffer(2)]], device float* y [[buffer(3)]],
                       constant uint& columns [[buffer(4)]], constant float& eps [[buffer(5)]],
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
  for (uint i = in_group; i < columns; i += threads) sum += x[i];
  float mean = sum_of_group(sum, partial, lane, simd, simds) / columns;

  float squares = 0;
  for (uint i = in_group; i < columns; i += threads) {
    float value = TwoPasses ? x[i] - mean : x[i];
    squares += value * value;
  }
  float variance = sum_of_group(squares, partial, lane, simd, simds) / columns;
  if (!TwoPasses) variance = max(variance - mean * mean, 0.0f);

  float scale = precise::rsqrt(variance + eps);
  for (uint i = in_group; i < columns; i += threads)
    y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

#define INSTANCE(NAME, TWO) \\
  template [[host_name(NAME)]] kernel void layer_norm<TWO>( \\
      device const float*, device const float*, device const float*, device float*, \\
      constant uint&, constant float&, uint, uint, uint, uint, uint, uint)

INSTANCE("layer_norm", true);
INSTANCE("layer_norm_naive", false);
"""


def error(kernel: Any, mean: float, shape: tuple[int, int]) -> float:
    x = mean + torch.randn(shape, device=DEVICE)
    weight, bias = torch.rand(shape[1], device=DEVICE), torch.randn(shape[1], device=DEVICE)
    y = torch.empty_like(x)
    group = min(256, (shape[1] + 31) // 32 * 32)
    kernel(x, weight, bias, y, shape[1], 1e-5, threads=shape[0] * group, group_size=group)
    exact = [tensor.cpu().double() for tensor in (x, weight, bias)]
    wanted = torch.nn.functional.layer_norm(exact[0], shape[1:], exact[1], exact[2], 1e-5)
    return float((y.cpu() - wanted).abs().max())


def main() -> None:
    lib = compile_shader(SOURCE)
    for mean in (0.0, 10.0, 1000.0):
        good, naive = (
            error(lib.layer_norm, mean, (4, 999)),
            error(lib.layer_norm_naive, mean, (4, 999)),
        )
        print(f"mean {mean:6}: two passes {good:.1e}, E[x^2] - E[x]^2 {naive:.1e}")
        # The inputs themselves have an error of mean * 6e-8 here.
        if not good < 2e-6 + 3e-7 * mean:
            raise SystemExit(f"two passes are off by {good}")
    if not naive > 100 * good:
        raise SystemExit("the cancellation that this example is about was not seen")
    for columns in (1, 31, 32, 33, 257):
        if not (found := error(lib.layer_norm, 1.0, (3, columns))) < 3e-6:
            raise SystemExit(f"rows of {columns}: off by {found}")


if __name__ == "__main__":
    main()
