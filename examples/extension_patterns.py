"""Operators of an Objective-C++ extension, called from Python and compared with float64.

    python examples/extension_patterns.py

The extension is the package in examples/extension: kernels, and a `.mm` that encodes them on
torch's stream. On Linux the import builds it (a minute the first time; docs/extension.md says what
that needs) and runs it on the virtual device. On a Mac `pip install ./examples/extension` first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "extension"))
import patterns


def exact(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().double()


def close(found: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(exact(found), wanted, rtol=1e-5, atol=1e-4, msg=lambda m: what + m)
    print(f"{what}as float64 has it")


def main() -> None:
    torch.manual_seed(0)
    for columns in (1, 31, 33, 1021):  # vectors of four, and a tail
        x, bias = torch.randn(3, columns).to("mps"), torch.randn(columns).to("mps")
        wanted = (1.7 * exact(x) + exact(bias)).clamp(min=0)
        close(patterns.scale(x, bias, 1.7, clamped=True), wanted, f"scale, {columns} columns: ")

    for columns in (33, 20011):  # in one phase, and in two
        x = torch.randn(3, columns).to("mps")
        close(patterns.row_sums(x), exact(x).sum(1), f"row_sums, {columns} columns: ")

    cache = torch.randn(8, 16).to("mps")  # a blit between kernels
    wanted = exact(cache)
    wanted[0] = wanted[3]
    patterns.copy_blocks(cache, [3], [0])
    close(cache, wanted, "copy_blocks: ")

    sizes = (5, 33, 257)  # many tensors in one block on the stream's queue
    values, grads, momenta = ([torch.randn(n).to("mps") for n in sizes] for _ in range(3))
    steps = [0.9 * exact(m) + exact(g) for m, g in zip(momenta, grads, strict=True)]
    after = [exact(v) - 0.1 * step for v, step in zip(values, steps, strict=True)]
    patterns.sgd_step(values, grads, momenta, 0.1, 0.9)
    close(torch.cat(values), torch.cat(after), "sgd_step: ")

    x, gate = (torch.randn(5, 33).to("mps").requires_grad_() for _ in range(2))
    patterns.gated_silu(x, gate).sum().backward()
    wanted = torch.nn.functional.silu(exact(gate))
    assert x.grad is not None
    close(x.grad, wanted, "gradient of gated_silu: ")


if __name__ == "__main__":
    main()
