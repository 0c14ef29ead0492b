"""Householder QR, and products with the orthogonal matrix that its reflections make."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.linalg.algorithms import qr_small
from anymetal.linalg.algorithms.matrices import (
    PANEL,
    SIMDGROUP,
    kernel_file,
    layout,
    padded,
    product,
    subtract_product,
    threads_of,
)
from anymetal.linalg.algorithms.qr_small import is_small

KERNELS = kernel_file("qr.metal")


def _tile(rows: int, columns: int) -> str:
    """The kernel for a matrix that fits into threadgroup memory; empty for larger ones."""
    if columns <= SIMDGROUP and rows * SIMDGROUP <= 7168:
        return "tall"
    if columns <= 2 * SIMDGROUP and rows * 2 * SIMDGROUP <= 6144:
        return "medium"
    return ""


def _shape(
    rows: int,
    columns: int,
    start: int,
    count: int,
    a: torch.Tensor,
    r: torch.Tensor,
    tau: torch.Tensor,
) -> dict[str, Any]:
    sizes = {"rows": rows, "columns": columns, "start": start, "count": count}
    return {**sizes, "a": layout(a), "r": layout(r), "tau": layout(tau)}


def factor(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """R with the reflections below its diagonal, and tau, for a batch of matrices."""
    batch, m, n = a.shape
    r, tau = a.new_empty(batch, m, n), a.new_empty(batch, min(m, n))
    if tau.numel() == 0:
        return r, tau
    if is_small(m, n):
        qr_small.factor(a, r, tau)
        return r, tau
    tile = _tile(m, n)
    if not tile:
        _blocked(a, r, tau)
        return r, tau
    size = threads_of("geqrf", a.device)
    KERNELS.kernel(f"qr_{tile}", a.device)(
        a,
        r,
        tau,
        _shape(m, n, 0, n, a, r, tau),
        threads=batch * size,
        group_size=size,
    )
    return r, tau


def both(a: torch.Tensor, q: torch.Tensor, r: torch.Tensor) -> bool:
    """Fills Q and R in one launch, if there is a kernel for matrices of this size."""
    if not is_small(*a.shape[1:], q.shape[-1]) or not (a.numel() and q.numel()):
        return False
    qr_small.both(a, q, r)
    return True


def _blocked(a: torch.Tensor, r: torch.Tensor, tau: torch.Tensor) -> None:
    batch, m, n = a.shape
    scales, scratch = a.new_empty(batch, n), a.new_empty(batch, m, PANEL)
    columns = {"threads": (n, batch), "group_size": (min(n, 2 * SIMDGROUP), 1)}
    shape = _shape(m, n, 0, n, a, r, tau)
    KERNELS.kernel("scale_columns", a.device)(a, r, scales, shape, **columns)
    size = threads_of("geqrf", a.device)
    for start in range(0, min(m, n), PANEL):
        stop = min(start + PANEL, m, n)
        KERNELS.kernel("qr_panel", a.device)(
            r,
            scratch,
            tau,
            _shape(m, n, start, stop - start, a, r, tau),
            threads=batch * size,
            group_size=size,
        )
        if stop < n:
            v, y = _together(r, tau, start, stop - start)
            rest = r[:, start:, stop:]
            subtract_product(rest, v, product(y.mT, rest))
    KERNELS.kernel("restore_columns", a.device)(r, scales, shape, **columns)


def _together(
    a: torch.Tensor, tau: torch.Tensor, start: int, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """V and V T of `count` reflections, whose product is I - V T V'."""
    batch, m, _ = a.shape
    rows = m - start
    v, y = (a.new_empty(batch, padded(rows, 8), PANEL) for _ in range(2))
    KERNELS.kernel("reflections_together", a.device)(
        a,
        tau,
        v,
        y,
        _shape(m, PANEL, start, count, a, v, tau),
        threads=batch * 4 * SIMDGROUP,
        group_size=4 * SIMDGROUP,
    )
    return v[:, :rows], y[:, :rows]


def reflect(
    a: torch.Tensor, tau: torch.Tensor, c: torch.Tensor, *, transpose: bool = False
) -> torch.Tensor:
    """Q C or Q' C, for the Q of all rows that the reflections in A make."""
    m, columns = c.shape[-2:]
    count = tau.shape[-1]
    if c.numel() == 0 or count == 0:
        return c.clone(memory_format=torch.contiguous_format)
    if is_small(m, columns, count) or _tile(m, columns):
        return _reflected(a, tau, c, c.new_empty(c.shape), backward=not transpose)
    result = c.clone(memory_format=torch.contiguous_format)
    starts = range(0, count, PANEL)
    for start in starts if transpose else reversed(starts):
        v, y = _together(a, tau, start, min(PANEL, count - start))
        rest = result[:, start:]
        if transpose:
            subtract_product(rest, v, product(y.mT, rest))
        else:
            subtract_product(rest, y, product(v.mT, rest))
    return result


def orthogonal(a: torch.Tensor, tau: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Fills Q with the first columns of the orthogonal matrix that the reflections in A make."""
    m, columns = q.shape[-2:]
    count = tau.shape[-1]
    if q.numel() and count and (is_small(m, columns, count) or _tile(m, columns)):
        return _reflected(a, tau, q, q, identity=True)
    q.copy_(torch.eye(m, columns, device=a.device))
    for start in reversed(range(0, count, PANEL)):
        if q.numel() == 0:
            break
        v, y = _together(a, tau, start, min(PANEL, count - start))
        rest = q[:, start:, start:]
        subtract_product(rest, y, product(v.mT, rest))
    return q


def _reflected(
    a: torch.Tensor,
    tau: torch.Tensor,
    c: torch.Tensor,
    result: torch.Tensor,
    *,
    backward: bool = True,
    identity: bool = False,
) -> torch.Tensor:
    """The result of all reflections at once, for matrices that fit into threadgroup memory."""
    batch, m, columns = c.shape
    if is_small(m, columns, tau.shape[-1]):
        qr_small.reflect(a, tau, c, result, backward=backward, identity=identity)
        return result
    shape = {
        "rows": m,
        "columns": columns,
        "count": tau.shape[-1],
        "backward": backward,
        "identity": identity,
        "a": layout(a),
        "tau": layout(tau),
        "c": layout(c),
        "result": layout(result),
    }
    size = threads_of("householder_product", a.device)
    KERNELS.kernel(f"reflect_{_tile(m, columns)}", a.device)(
        a, tau, c, result, shape, threads=batch * size, group_size=size
    )
    return result
