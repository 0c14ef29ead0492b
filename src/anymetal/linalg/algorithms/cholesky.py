"""Cholesky factors, and what is solved with them."""

from __future__ import annotations

import torch

from anymetal.linalg.algorithms.matrices import (
    PANEL,
    SIMDGROUP,
    kernel_file,
    layout,
    padded,
    subtract_product,
)

KERNELS = kernel_file("cholesky.metal")
# Floats of a tile of cholesky_large.
_CAPACITY = 7680
# Rows below the diagonal block that a threadgroup solves for.
_HEIGHT = 96


def factor(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """L and info of a batch of matrices, of which the lower triangles are read."""
    batch, n, _ = a.shape
    info = torch.zeros(batch, dtype=torch.int32, device=a.device)
    if n <= SIMDGROUP or n * padded(n) <= _CAPACITY:
        lower = a.new_empty(batch, n, n)
        if lower.numel():
            _panel(a, lower, info, 0)
        return lower, info
    work, lower = a.clone(memory_format=torch.contiguous_format), a.new_zeros(batch, n, n)
    for start in range(0, n, PANEL):
        stop = min(start + PANEL, n)
        here, below = slice(start, stop), slice(stop, n)
        _panel(work[:, start:, here], lower[:, start:, here], info, start)
        solved = lower[:, below, here]
        subtract_product(work[:, below, below], solved, solved.mT)
    return lower, info


def _panel(a: torch.Tensor, lower: torch.Tensor, info: torch.Tensor, start: int) -> None:
    """Factors the columns of `a`, which are those of a matrix from `start` on."""
    batch, rows, count = a.shape
    groups = max(1, -(-(rows - count) // _HEIGHT))
    small = rows <= SIMDGROUP
    size = SIMDGROUP if small else 8 * SIMDGROUP
    shape = {
        "start": start,
        "count": count,
        "rows": rows,
        "height": _HEIGHT,
        "a": layout(a),
        "l": layout(lower),
    }
    KERNELS.kernel("cholesky_small" if small else "cholesky_large", a.device)(
        a, lower, info, shape, threads=(groups * size, batch), group_size=(size, 1)
    )
