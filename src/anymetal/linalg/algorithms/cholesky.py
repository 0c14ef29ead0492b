"""Cholesky factors, and what is solved with them."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.linalg.algorithms.matrices import (
    PANEL,
    SIMDGROUP,
    columns_of_lanes,
    kernel_file,
    layout,
    order,
    planned,
    run_planned,
    subtract_product,
    threads_of,
)

KERNELS = kernel_file("cholesky.metal")
# Rows and columns of a tile of cholesky_tile.
_TILE = 80
# Rows below the diagonal block that a threadgroup solves for.
_HEIGHT = 96


def factor(a: torch.Tensor, lower: torch.Tensor, info: torch.Tensor) -> None:
    """Fills L and info for a batch of matrices, of which the lower triangles are read."""
    n = a.shape[-1]
    if a.numel() == 0:
        info.zero_()
        return
    if n <= SIMDGROUP:
        run_planned(KERNELS, _small(a, lower), a, lower, info)
        return
    if n <= _TILE:
        _panel("cholesky_tile", a, lower, info, 0)
        return
    work = a.clone(memory_format=torch.contiguous_format)
    lower.zero_()
    for start in range(0, n, PANEL):
        stop = min(start + PANEL, n)
        here, below = slice(start, stop), slice(stop, n)
        _panel("cholesky_rows", work[:, start:, here], lower[:, start:, here], info, start)
        solved = lower[:, below, here]
        subtract_product(work[:, below, below], solved, solved.mT)


@planned
def _small(a: torch.Tensor, lower: torch.Tensor) -> tuple[str, int, dict[str, Any]]:
    batch, n, _ = a.shape
    size = columns_of_lanes(n)
    upper, u = a.mT, lower.mT
    return (
        "cholesky",
        size,
        {
            "n": n,
            "matrices": batch,
            "from": order(upper, size),
            "to": order(u, size),
            "a": layout(upper),
            "u": layout(u),
        },
    )


def _panel(name: str, a: torch.Tensor, lower: torch.Tensor, info: torch.Tensor, start: int) -> None:
    """Factors the columns of `a`, which are those of a matrix from `start` on."""
    batch, rows, count = a.shape
    groups = max(1, -(-(rows - count) // _HEIGHT))
    shape = {
        "start": start,
        "count": count,
        "rows": rows,
        "height": _HEIGHT,
        "a": layout(a),
        "l": layout(lower),
    }
    size = threads_of("cholesky_ex", a.device)
    KERNELS.kernel(name, a.device)(
        a, lower, info, shape, threads=(groups * size, batch), group_size=(size, 1)
    )
