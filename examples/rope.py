"""Rotary embedding of queries and keys over a grid of three dimensions: pair, head, position.

    python examples/rope.py

Each thread turns one pair of elements in place, so that no two threads touch the same memory. The
inverse rotation, which is the gradient, is the same kernel with the sine negated.
"""

from __future__ import annotations

import torch

import anymetal

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
compile_shader = torch.mps.compile_shader if DEVICE == "mps" else anymetal.compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

// x is [positions, heads, width]; element i turns with element i + width / 2 ("split half").
kernel void rope(device float* x [[buffer(0)]], constant float& log_base [[buffer(1)]],
                 constant int& offset [[buffer(2)]], constant float& direction [[buffer(3)]],
                 uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
  uint pair = at.x, pairs = size.x;
  ulong row = (ulong(at.z) * size.y + at.y) * 2 * pairs;
  float frequency = precise::exp(-log_base * float(pair) / float(pairs));
  float angle = float(int(at.z) + offset) * frequency;
  float cosine = precise::cos(angle), sine = direction * precise::sin(angle);
  float first = x[row + pair], second = x[row + pair + pairs];
  x[row + pair] = first * cosine - second * sine;
  x[row + pair + pairs] = second * cosine + first * sine;
}
"""


def reference(x: torch.Tensor, base: float, offset: int) -> torch.Tensor:
    exact = x.cpu().double()
    pairs = x.shape[-1] // 2
    frequency = base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    angle = (torch.arange(x.shape[0]) + offset)[:, None, None] * frequency
    first, second = exact[..., :pairs], exact[..., pairs:]
    turned = (
        first * angle.cos() - second * angle.sin(),
        second * angle.cos() + first * angle.sin(),
    )
    return torch.cat(turned, -1)


def main() -> None:
    lib = compile_shader(SOURCE)
    base = torch.tensor(10000.0)
    for positions, heads, width, offset in [(1, 1, 2, 0), (7, 3, 64, 0), (5, 2, 34, 100)]:
        x = torch.randn(positions, heads, width, device=DEVICE)
        wanted, before = reference(x, 10000.0, offset), x.clone()
        grid = (width // 2, heads, positions)
        group = (min(32, grid[0]), 1, 1)
        lib.rope(x, base.log().item(), offset, 1.0, threads=grid, group_size=group)
        # The angle of position 100 has an error of 100 * 6e-8 in float32.
        torch.testing.assert_close(x.cpu().double(), wanted, rtol=1e-5, atol=5e-5)
        lib.rope(x, base.log().item(), offset, -1.0, threads=grid, group_size=group)
        torch.testing.assert_close(x, before, rtol=1e-5, atol=1e-5)
        print(f"{positions} positions, {heads} heads of {width}: there and back again")


if __name__ == "__main__":
    main()
