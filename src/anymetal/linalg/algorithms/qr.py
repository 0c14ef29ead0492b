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
    threads_of,
)
from anymetal.linalg.algorithms.qr_small import is_small

KERNELS = kernel_file("qr.metal")
_NOWHERE = {"matrix": 0, "row": 0, "column": 0}


def _tile(rows: int, columns: int) -> str:
    """The kernel for a matrix that fits into threadgroup memory; empty for larger ones."""
    if columns <= SIMDGROUP and rows * SIMDGROUP <= 7168:
        return "tall"
    if columns <= 2 * SIMDGROUP and rows * 2 * SIMDGROUP <= 6144:
        return "medium"
    return ""


def _shape(rows: int, columns: int, start: int, count: int, **layouts: Any) -> dict[str, Any]:
    sizes = {"rows": rows, "columns": columns, "start": start, "count": count}
    return {**sizes, **dict.fromkeys(("a", "r", "tau", "v"), _NOWHERE), **layouts}


def factor(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """R with the reflections below its diagonal, and tau, for a batch of matrices."""
    batch, m, n = a.shape
    tau = a.new_empty(batch, min(m, n))
    tile = _tile(m, n)
    if tau.numel() and not tile and not is_small(m, n):
        return _blocked(a, tau), tau
    r = a.new_empty(batch, m, n)
    if tau.numel() == 0:
        return r, tau
    if is_small(m, n):
        qr_small.factor(a, r, tau)
        return r, tau
    size = threads_of("geqrf", a.device)
    KERNELS.kernel(f"qr_{tile}", a.device)(
        a,
        r,
        tau,
        _shape(m, n, 0, n, a=layout(a), r=layout(r), tau=layout(tau)),
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


def _blocked(a: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    batch, m, n = a.shape
    scales, scratch = a.new_empty(batch, n), a.new_empty(batch, m, PANEL)
    v, y = (a.new_empty(batch, padded(m, 8), PANEL) for _ in range(2))
    reflected = min(m, n)
    room = _room(a, m, reflected + padded(n - reflected))
    r = room[:, :m, :n]
    columns = {"threads": (n, batch), "group_size": (min(n, 2 * SIMDGROUP), 1)}
    layouts = {"a": layout(a), "r": layout(r), "tau": layout(tau), "v": layout(v)}
    shape = _shape(m, n, 0, n, **layouts)
    KERNELS.kernel("scale_columns", a.device)(a, r, scales, shape, **columns)
    size = threads_of("geqrf", a.device)
    for start in range(0, reflected, PANEL):
        stop = min(start + PANEL, reflected)
        KERNELS.kernel("qr_panel", a.device)(
            r,
            scratch,
            tau,
            v,
            y,
            _shape(m, n, start, stop - start, **layouts),
            threads=batch * size,
            group_size=size,
        )
        if stop < n:
            _apply(y, v, room[:, start:, stop : stop + padded(n - stop)])
    KERNELS.kernel("restore_columns", a.device)(r, scales, shape, **columns)
    return r


def _room(a: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """A batch of matrices for reflections in blocks, with zeros around those asked for."""
    shape = (a.shape[0], padded(rows, 8), padded(columns))
    return a.new_empty(shape) if shape[1:] == (rows, columns) else a.new_zeros(shape)


def _apply(left: torch.Tensor, right: torch.Tensor, c: torch.Tensor) -> None:
    """C -= right left' C, for C of a multiple of 8 rows and 32 columns; left may have more rows."""
    batch, rows, columns = c.shape
    KERNELS.kernel("reflect_block", c.device)(
        left,
        right,
        c,
        {"rows": rows, "matrix": left.stride(0), "c": layout(c)},
        threads=(columns * 4, batch),
        group_size=(4 * SIMDGROUP, 1),
    )


def _together(a: torch.Tensor, tau: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """V and V T of each 32 reflections, whose product is I - V T V': [batch, panels, rows, 32]."""
    batch, m, _ = a.shape
    count = tau.shape[-1]
    panels = -(-count // PANEL)
    v, y = (a.new_empty(batch, panels, padded(m, 8), PANEL) for _ in range(2))
    KERNELS.kernel("reflections_together", a.device)(
        a,
        tau,
        v,
        y,
        _shape(m, PANEL, 0, count, a=layout(a), tau=layout(tau), v=layout(v)),
        threads=(panels * 4 * SIMDGROUP, batch),
        group_size=(4 * SIMDGROUP, 1),
    )
    return v, y


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
    room = _room(c, m, columns)
    room[:, :m, :columns] = c
    v, y = _together(a, tau)
    left, right = (y, v) if transpose else (v, y)
    panels = range(v.shape[1])
    for panel in panels if transpose else reversed(panels):
        _apply(left[:, panel], right[:, panel], room[:, panel * PANEL :])
    return room[:, :m, :columns]


def orthogonal(a: torch.Tensor, tau: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Fills Q with the first columns of the orthogonal matrix that the reflections in A make."""
    m, columns = q.shape[-2:]
    count = tau.shape[-1]
    if q.numel() and count and (is_small(m, columns, count) or _tile(m, columns)):
        return _reflected(a, tau, q, q, identity=True)
    if q.numel() == 0 or count == 0:
        return q.copy_(torch.eye(m, columns, device=a.device))
    fits = m % 8 == 0 and columns % PANEL == 0 and q.is_contiguous()
    room = q if fits else _room(q, m, columns)
    room.zero_().diagonal(dim1=-2, dim2=-1).fill_(1.0)
    v, y = _together(a, tau)
    for panel in reversed(range(v.shape[1])):
        start = panel * PANEL
        _apply(v[:, panel], y[:, panel], room[:, start:, start:])
    return q if fits else q.copy_(room[:, :m, :columns])


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
