"""Norms and their gradients by the kernels that a GPU has for whole rows, on many shapes.

    python tests/cuda/norms.py --compile norms.bundle
    ANYMETAL_BUNDLE=norms.bundle python tests/cuda/norms.py

The first compiles the kernels on any machine; the second compares results with float64's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from anymetal import ops

sys.path.insert(0, str(Path(__file__).parent))
from bundling import write_kernels

# Teams of few and many simdgroups; one row, fewer than there are threadgroups, one more, many.
COLUMNS = (2048, 2560, 4096, 5120, 8192, 12288, 16384)
ROWS = (1, 9, 133, 1061)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Call:
    """A norm of rows whose mean is not 0."""

    kind: str
    rows: int
    columns: int
    dtype: torch.dtype
    device: str

    def tensors(self) -> list[torch.Tensor]:
        """The gradient of the result, then x, the weight and for layer_norm the bias."""
        generator = torch.Generator().manual_seed(self.rows + self.columns)
        shapes = [(self.rows, self.columns)] * 2 + [(self.columns,)] * 2
        made = [torch.randn(shape, generator=generator) + 0.5 for shape in shapes]
        used = made if self.kind == "layer_norm" else made[:3]
        return [one.to(self.dtype).to(self.device) for one in used]

    def results(self, tensors: list[torch.Tensor], *, own: bool) -> list[torch.Tensor]:
        """The norm, and the gradients of x and of the parameters."""
        grad, *leaves = (one.detach().requires_grad_() for one in tensors)
        eps = {"layer_norm": 1e-5, "rms_norm": torch.finfo(torch.float32).eps}[self.kind]
        function = getattr(ops if own else F, self.kind)
        y = function(leaves[0], (self.columns,), *leaves[1:], eps=eps)
        return [y, *torch.autograd.grad(y, leaves, grad)]

    def errors(self) -> list[float]:
        """Relative ones, in units of what the dtype can show."""
        tensors = self.tensors()
        exact = self.results([one.double() for one in tensors], own=False)
        found = self.results(tensors, own=True)
        eps = torch.finfo(self.dtype).eps
        pairs = zip(found, exact, strict=True)
        return [float((a.double() - b).norm() / b.norm()) / eps for a, b in pairs]


def calls(device: str) -> Iterator[Call]:
    for kind in ("rms_norm", "layer_norm"):
        for dtype in DTYPES:
            for columns in COLUMNS:
                for rows in ROWS:
                    yield Call(kind, rows, columns, dtype, device)


def main(path: Path | None) -> None:
    if path is not None:
        write_kernels(path, _request_all)
        return
    wrong, worst = 0, 0.0
    for call in calls("cuda"):
        errors = call.errors()
        worst = max(worst, *errors)
        if not max(errors) <= 4.0:
            wrong += 1
            print(f"{call}: {errors} times what the dtype can show", flush=True)
    count = len(list(calls("cpu")))
    print(f"{wrong} of {count} norms are wrong; the worst error is {worst:.2f}", flush=True)


def _request_all() -> None:
    for call in calls("cpu"):
        call.results(call.tensors(), own=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", type=Path)
    main(parser.parse_args().compile)
