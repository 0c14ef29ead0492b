"""Householder QR of matrices of up to 32 rows and columns: one launch each."""

from __future__ import annotations

import torch

from anymetal.linalg.algorithms.matrices import (
    SIMDGROUP,
    columns_of_lanes,
    kernel_file,
    layout,
    order,
    simdgroups_for,
)

KERNELS = kernel_file("qr_small.metal")


def is_small(*sizes: int) -> bool:
    return max(sizes) <= SIMDGROUP


def factor(a: torch.Tensor, r: torch.Tensor, tau: torch.Tensor) -> None:
    """Fills R, with the reflections below its diagonal, and tau."""
    batch, m, n = a.shape
    size = columns_of_lanes(n)
    shape = {"rows": m, "columns": n, "matrices": batch}
    shape |= {"from": order(a, size), "to": order(r, size)}
    KERNELS.kernel(f"geqrf_{size}", a.device)(
        a,
        r,
        tau,
        {**shape, "a": layout(a), "r": layout(r)},
        threads=simdgroups_for(batch, size),
        group_size=SIMDGROUP,
    )


def both(a: torch.Tensor, q: torch.Tensor, r: torch.Tensor) -> None:
    """Fills Q and R; Q has as many columns as R has rows."""
    batch, m, n = a.shape
    size = columns_of_lanes(max(n, q.shape[-1]))
    shape = {"rows": m, "columns": n, "q_columns": q.shape[-1], "matrices": batch}
    shape |= {"from": order(a, size), "to": order(r, size), "to_q": order(q, size)}
    KERNELS.kernel(f"qr_{size}", a.device)(
        a,
        q,
        r,
        {**shape, "a": layout(a), "r": layout(r), "q": layout(q)},
        threads=simdgroups_for(batch, size),
        group_size=SIMDGROUP,
    )


def reflect(
    a: torch.Tensor, tau: torch.Tensor, c: torch.Tensor, result: torch.Tensor, **how: bool
) -> None:
    """Fills the result with Q C or, not `backward`, Q' C; C is `identity` or read.

    tau is contiguous.
    """
    batch, m, columns = result.shape
    count = tau.shape[-1]
    size = columns_of_lanes(max(columns, count))
    shape = {"rows": m, "columns": columns, "count": count, "matrices": batch, **how}
    shape |= {"from": order(a, size), "from_c": order(c, size), "to": order(result, size)}
    layouts = {"a": layout(a), "c": layout(c), "result": layout(result)}
    KERNELS.kernel(f"reflect_{size}", a.device)(
        a,
        tau,
        c,
        result,
        {**shape, **layouts},
        threads=simdgroups_for(batch, size),
        group_size=SIMDGROUP,
    )
