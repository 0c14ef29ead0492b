"""Triangular systems: substitution in diagonal blocks, products for the rest."""

from __future__ import annotations

import torch

from anymetal.linalg.algorithms.matrices import (
    PANEL,
    SIMDGROUP,
    kernel_file,
    layout,
    subtract_product,
)

KERNELS = kernel_file("triangular.metal")


def solve(
    t: torch.Tensor, b: torch.Tensor, *, upper: bool, unitriangular: bool = False
) -> torch.Tensor:
    """X with T X = B for batches of one size; only the named triangle of T is read."""
    batch, n, columns = b.shape
    x = b.new_empty(batch, n, columns)
    if x.numel() == 0:
        return x
    if n <= PANEL:
        _block(t, b, x, upper, unitriangular)
        return x
    x.copy_(b)
    starts = range(0, n, PANEL)
    for start in reversed(starts) if upper else starts:
        here = slice(start, min(start + PANEL, n))
        _block(t[:, here, here], x[:, here], x[:, here], upper, unitriangular)
        rest = slice(0, here.start) if upper else slice(here.stop, n)
        subtract_product(x[:, rest], t[:, rest, here], x[:, here])
    return x


def _block(
    t: torch.Tensor, b: torch.Tensor, x: torch.Tensor, upper: bool, unitriangular: bool
) -> None:
    batch, n, columns = b.shape
    sizes = {"rows": n, "columns": columns, "upper": upper, "unit": unitriangular}
    shape = {**sizes, "t": layout(t), "b": layout(b), "x": layout(x)}
    KERNELS.kernel("solve_block", b.device)(
        t,
        b,
        x,
        shape,
        threads=(-(-columns // SIMDGROUP) * SIMDGROUP, batch),
        group_size=(SIMDGROUP, 1),
    )
