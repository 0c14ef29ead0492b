"""Householder QR, and products with the orthogonal matrix that its reflections make."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.linalg.algorithms.matrices import (
    PANEL,
    SIMDGROUP,
    columns_of_lanes,
    kernel_file,
    layout,
    padded,
    product,
    simdgroups_for,
    subtract_product,
)

KERNELS = kernel_file("qr.metal")
_SIMDGROUPS = 8


def _tile(rows: int, columns: int) -> tuple[str, int] | None:
    """The kernel for a matrix that fits into threadgroup memory, and its threads."""
    if rows <= SIMDGROUP and columns <= SIMDGROUP:
        packed = columns_of_lanes(columns) < SIMDGROUP
        return "packed" if packed else "small", SIMDGROUP
    if columns <= SIMDGROUP and rows * SIMDGROUP <= 7168:
        return "tall", _SIMDGROUPS * SIMDGROUP
    if columns <= 2 * SIMDGROUP and rows * 2 * SIMDGROUP <= 6144:
        return "medium", _SIMDGROUPS * SIMDGROUP
    return None


def _lanes(matrices: int, columns: int) -> dict[str, int]:
    return {"size": columns_of_lanes(min(columns, SIMDGROUP)), "matrices": matrices}


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
    sizes |= _lanes(a.shape[0], columns)
    return {**sizes, "a": layout(a), "r": layout(r), "tau": layout(tau)}


def factor(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """R with the reflections below its diagonal, and tau, for a batch of matrices."""
    batch, m, n = a.shape
    r, tau = a.new_empty(batch, m, n), a.new_empty(batch, min(m, n))
    if tau.numel() == 0:
        return r, tau
    tile = _tile(m, n)
    if tile is None:
        _blocked(a, r, tau)
        return r, tau
    name, size = tile
    KERNELS.kernel(f"qr_{name}", a.device)(
        a,
        r,
        tau,
        _shape(m, n, 0, n, a, r, tau),
        threads=_threads(batch, n, tile),
        group_size=size,
    )
    return r, tau


def _threads(batch: int, columns: int, tile: tuple[str, int]) -> int:
    name, size = tile
    if name in ("small", "packed"):
        return simdgroups_for(batch, columns_of_lanes(columns))
    return batch * size


def _blocked(a: torch.Tensor, r: torch.Tensor, tau: torch.Tensor) -> None:
    batch, m, n = a.shape
    scales, scratch = a.new_empty(batch, n), a.new_empty(batch, m, PANEL)
    columns = {"threads": (n, batch), "group_size": (min(n, 2 * SIMDGROUP), 1)}
    shape = _shape(m, n, 0, n, a, r, tau)
    KERNELS.kernel("scale_columns", a.device)(a, r, scales, shape, **columns)
    size = _SIMDGROUPS * SIMDGROUP
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
    tile = _tile(m, columns)
    if tile is not None:
        return _reflect_tile(a, tau, c, tile, backward=not transpose)
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
    batch, m, columns = q.shape
    count = tau.shape[-1]
    tile = _tile(m, columns) if count and columns and batch else None
    if tile is not None:
        return _reflect_tile(a, tau, q, tile, identity=True)
    q.copy_(torch.eye(m, columns, device=a.device))
    for start in reversed(range(0, count, PANEL)):
        if q.numel() == 0:
            break
        v, y = _together(a, tau, start, min(PANEL, count - start))
        rest = q[:, start:, start:]
        subtract_product(rest, y, product(v.mT, rest))
    return q


def _reflect_tile(
    a: torch.Tensor,
    tau: torch.Tensor,
    c: torch.Tensor,
    tile: tuple[str, int],
    *,
    backward: bool = True,
    identity: bool = False,
) -> torch.Tensor:
    batch, m, columns = c.shape
    result = c if identity else c.new_empty(batch, m, columns)
    name, size = tile
    shape = {
        "rows": m,
        "columns": columns,
        "count": tau.shape[-1],
        "backward": backward,
        "identity": identity,
        **_lanes(batch, columns),
        "a": layout(a),
        "tau": layout(tau),
        "c": layout(c),
        "result": layout(result),
    }
    name = "small" if name == "packed" else name
    KERNELS.kernel(f"reflect_{name}", a.device)(
        a,
        tau,
        c,
        result,
        shape,
        threads=_threads(batch, columns, tile),
        group_size=size,
    )
    return result
