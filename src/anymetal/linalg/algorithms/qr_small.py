"""Householder QR of matrices of up to 32 rows and columns: one launch each."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.linalg.algorithms.matrices import (
    SIMDGROUP,
    columns_of_lanes,
    kernel_file,
    layout,
    order,
    planned,
    run_planned,
)

KERNELS = kernel_file("qr_small.metal")


def is_small(*sizes: int) -> bool:
    return max(sizes) <= SIMDGROUP


def factor(a: torch.Tensor, r: torch.Tensor, tau: torch.Tensor) -> None:
    """Fills R, with the reflections below its diagonal, and tau."""
    run_planned(KERNELS, _factor(a, r), a, r, tau)


@planned
def _factor(a: torch.Tensor, r: torch.Tensor) -> tuple[str, int, dict[str, Any]]:
    batch, m, n = a.shape
    size = columns_of_lanes(n)
    shape = {"rows": m, "columns": n, "matrices": batch}
    shape |= {"from": order(a, size), "to": order(r, size)}
    return "geqrf", size, {**shape, "a": layout(a), "r": layout(r)}


def both(a: torch.Tensor, q: torch.Tensor, r: torch.Tensor) -> None:
    """Fills Q and R; Q has as many columns as R has rows."""
    run_planned(KERNELS, _both(a, q, r), a, q, r)


@planned
def _both(a: torch.Tensor, q: torch.Tensor, r: torch.Tensor) -> tuple[str, int, dict[str, Any]]:
    batch, m, n = a.shape
    size = columns_of_lanes(max(n, q.shape[-1]))
    shape = {"rows": m, "columns": n, "q_columns": q.shape[-1], "matrices": batch}
    shape |= {"from": order(a, size), "to": order(r, size), "to_q": order(q, size)}
    return "qr", size, {**shape, "a": layout(a), "r": layout(r), "q": layout(q)}


def reflect(
    a: torch.Tensor, tau: torch.Tensor, c: torch.Tensor, result: torch.Tensor, **how: bool
) -> None:
    """Fills the result with Q C or, not `backward`, Q' C; C is `identity` or read.

    tau is contiguous.
    """
    run_planned(KERNELS, _reflect(result, a, tau, c, **how), a, tau, c, result)


@planned
def _reflect(
    result: torch.Tensor, a: torch.Tensor, tau: torch.Tensor, c: torch.Tensor, **how: bool
) -> tuple[str, int, dict[str, Any]]:
    batch, m, columns = result.shape
    count = tau.shape[-1]
    size = columns_of_lanes(max(columns, count))
    shape = {"rows": m, "columns": columns, "count": count, "matrices": batch, **how}
    shape |= {"from": order(a, size), "from_c": order(c, size), "to": order(result, size)}
    layouts = {"a": layout(a), "c": layout(c), "result": layout(result)}
    return "reflect", size, {**shape, **layouts}
