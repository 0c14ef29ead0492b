"""A matrix of 4-bit weights times a vector, unpacked in registers.

    python examples/dequant_matvec.py

Eight weights lie in a 32-bit word; 32 weights of a row share a scale and a minimum. A simdgroup
does a row: each lane reads whole words, so a row of 4096 weights is 2 KiB of memory and not 16.
"""

from __future__ import annotations

from typing import Any

import torch

import anymetal

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
compile_shader = torch.mps.compile_shader if DEVICE == "mps" else anymetal.compile_shader
GROUP = 32

SOURCE = """
#include <metal_stdlib>
using namespace metal;

constant constexpr uint GROUP = 32;

kernel void matvec_int4(device const int* words [[buffer(0)]],
                        device const float* scales [[buffer(1)]],
                        device const float* minima [[buffer(2)]],
                        device const float* x [[buffer(3)]], device float* y [[buffer(4)]],
                        constant uint& rows [[buffer(5)]], constant uint& columns [[buffer(6)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint simds [[simdgroups_per_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
  uint row = group * simds + simd;
  if (row >= rows) return;  // a whole simdgroup leaves, and no barrier follows
  words += ulong(row) * (columns / 8);
  scales += ulong(row) * (columns / GROUP);
  minima += ulong(row) * (columns / GROUP);

  float sum = 0;
  for (uint word = lane; word < columns / 8; word += 32) {
    uint packed = as_type<uint>(words[word]);
    float product = 0, total = 0;
    for (uint i = 0; i < 8; i++) {
      float value = x[8 * word + i];
      product += float((packed >> (4 * i)) & 15) * value;
      total += value;
    }
    uint of = 8 * word / GROUP;  // scale and minimum are applied once a word, not once a weight
    sum += scales[of] * product + minima[of] * total;
  }
  sum = simd_sum(sum);
  if (lane == 0) y[row] = sum;
}
"""


def quantise(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, columns = weight.shape
    groups = weight.reshape(rows, columns // GROUP, GROUP)
    low, high = groups.amin(-1), groups.amax(-1)
    scale = (high - low).clamp_min(1e-8) / 15
    codes = ((groups - low[..., None]) / scale[..., None]).round().clamp(0, 15).long()
    shifts = 4 * torch.arange(8)
    words = (codes.reshape(rows, columns // 8, 8) << shifts).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).int(), scale, low


def unpack(words: torch.Tensor, scale: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    codes = (words.long()[..., None] >> (4 * torch.arange(8))) & 15
    groups = codes.reshape(*scale.shape, GROUP).double()
    return (groups * scale[..., None] + low[..., None]).flatten(1)


def matvec(lib: Any, packed: tuple[torch.Tensor, ...], x: torch.Tensor) -> torch.Tensor:
    words, scale, low = (tensor.to(DEVICE) for tensor in packed)
    rows = words.shape[0]
    y = torch.empty(rows, device=DEVICE)
    groups = (rows + 3) // 4  # four simdgroups in each
    lib.matvec_int4(
        *(words, scale, low, x, y, rows, x.numel()), threads=groups * 128, group_size=128
    )
    return y


def main() -> None:
    lib = compile_shader(SOURCE)
    for rows, columns in [(1, 32), (5, 64), (33, 4096), (7, 1056)]:
        weight, x = torch.randn(rows, columns), torch.randn(columns)
        packed = quantise(weight)
        found = matvec(lib, packed, x.to(DEVICE)).cpu().double()
        wanted = unpack(*packed) @ x.double()
        # The kernel against the weights it was given: rounding only.
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)
        loss = (wanted - weight.double() @ x.double()).norm() / wanted.norm()
        print(f"{rows} x {columns}: as float64 of the same weights; four bits lost {loss:.1%}")


if __name__ == "__main__":
    main()
