"""LU factors with partial pivoting, and what is solved with them."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.linalg.algorithms import triangular
from anymetal.linalg.algorithms.matrices import (
    PANEL,
    SIMDGROUP,
    columns_of_lanes,
    kernel_file,
    layout,
    order,
    padded,
    planned,
    run_planned,
    subtract_product,
    threads_of,
)

KERNELS = kernel_file("lu.metal")
# Numbers of a tile of lu_tile.
_CAPACITY = 7680
# Columns of B up to which a lane takes a row of X; with more, a lane takes a column.
_FEW = 8


def factor(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """L and U in one matrix, the row swaps (from 1 on) and info, for a batch of matrices."""
    batch, m, n = a.shape
    pivots = torch.empty(batch, min(m, n), dtype=torch.int32, device=a.device)
    info = torch.zeros(batch, dtype=torch.int32, device=a.device)
    if pivots.numel() == 0:
        return a.new_empty(batch, m, n), pivots, info
    if m * padded(n) <= _CAPACITY:
        return _tile(a, pivots, info), pivots, info
    lu = a.clone(memory_format=torch.contiguous_format)
    scratch = a.new_empty(batch, m, PANEL)
    for start in range(0, min(m, n), PANEL):
        _panel(lu, scratch, pivots, info, start)
    return lu, pivots, info


def _tile(a: torch.Tensor, pivots: torch.Tensor, info: torch.Tensor) -> torch.Tensor:
    batch, m, n = a.shape
    lu = a.new_empty(batch, m, n)
    if max(m, n) <= SIMDGROUP:
        run_planned(KERNELS, _small(a, lu), a, lu, pivots, info)
        return lu
    threads = threads_of("lu_factor_ex", a.device)
    KERNELS.kernel("lu_tile", a.device)(
        a,
        lu,
        pivots,
        info,
        _shape(m, n, 0, a=layout(a), lu=layout(lu), pivots=layout(pivots)),
        threads=batch * threads,
        group_size=threads,
    )
    return lu


@planned
def _small(a: torch.Tensor, lu: torch.Tensor) -> tuple[str, int, dict[str, Any]]:
    batch, m, n = a.shape
    size = columns_of_lanes(max(m, n))
    shape = {"rows": m, "columns": n, "matrices": batch}
    shape |= {"from": order(a, size), "to": order(lu, size)}
    return "lu", size, {**shape, "a": layout(a), "lu": layout(lu)}


def _shape(rows: int, columns: int, start: int, **others: Any) -> dict[str, Any]:
    return {"rows": rows, "columns": columns, "start": start, **others}


def _panel(
    lu: torch.Tensor, scratch: torch.Tensor, pivots: torch.Tensor, info: torch.Tensor, start: int
) -> None:
    batch, m, n = lu.shape
    stop = min(start + PANEL, m, n)
    count, size = stop - start, threads_of("lu_factor_ex", lu.device)
    where = {"lu": layout(lu), "pivots": layout(pivots)}
    KERNELS.kernel("lu_panel", lu.device)(
        lu,
        scratch,
        pivots,
        info,
        _shape(m, count, start, a=layout(scratch), **where),
        threads=batch * size,
        group_size=size,
    )
    if n > count:
        KERNELS.kernel("lu_swap_solve", lu.device)(
            lu,
            pivots,
            _shape(m, n, start, count=count, **where),
            threads=(padded(n - count, 2 * SIMDGROUP), batch),
            group_size=(2 * SIMDGROUP, 1),
        )
    subtract_product(lu[:, stop:, stop:], lu[:, stop:, start:stop], lu[:, start:stop, stop:])


def swap_rows(x: torch.Tensor, pivots: torch.Tensor, *, backward: bool = False) -> None:
    """Swaps rows of X in place as the pivots say: X becomes P' X, or backward P X."""
    batch, _, columns = x.shape
    if x.numel() == 0 or pivots.numel() == 0:
        return
    KERNELS.kernel("swap_rows", x.device)(
        x,
        pivots,
        {
            "count": pivots.shape[-1],
            "columns": columns,
            "backward": backward,
            "x": layout(x),
            "pivots": layout(pivots),
        },
        threads=(columns, batch),
        group_size=(min(SIMDGROUP, columns), 1),
    )


def solve(
    lu: torch.Tensor, pivots: torch.Tensor, b: torch.Tensor, *, adjoint: bool = False
) -> torch.Tensor:
    """X with A X = B, or A' X = B, for a batch of factors of square matrices."""
    if b.shape[-2] <= SIMDGROUP and b.shape[-1] <= _FEW and b.numel():
        return _solve_small(lu, pivots, b, adjoint=adjoint)
    if adjoint:
        x = triangular.solve(lu.mT, b, upper=False)
        x = triangular.solve(lu.mT, x, upper=True, unitriangular=True)
        swap_rows(x, pivots, backward=True)
        return x
    x = b.clone(memory_format=torch.contiguous_format)
    swap_rows(x, pivots)
    x = triangular.solve(lu, x, upper=False, unitriangular=True)
    return triangular.solve(lu, x, upper=True)


def _solve_small(
    lu: torch.Tensor, pivots: torch.Tensor, b: torch.Tensor, *, adjoint: bool
) -> torch.Tensor:
    x = b.new_empty(b.shape)
    plan = _solve_plan(b, x, lu, adjoint=adjoint)
    run_planned(KERNELS, plan, lu, pivots, b, x)
    return x


@planned
def _solve_plan(
    b: torch.Tensor, x: torch.Tensor, lu: torch.Tensor, *, adjoint: bool
) -> tuple[str, int, dict[str, Any]]:
    batch, n, columns = b.shape
    sizes = {"n": n, "matrices": batch, "columns": columns, "adjoint": adjoint}
    shape = {**sizes, "lu": layout(lu), "b": layout(b), "x": layout(x)}
    return "lu_solve", columns_of_lanes(n), shape


def is_small(n: int, columns: int) -> bool:
    """Whether one launch can solve a system of this size."""
    return max(n, columns) <= SIMDGROUP


def solve_small(
    a: torch.Tensor, b: torch.Tensor | None, x: torch.Tensor, info: torch.Tensor
) -> None:
    """Fills info, and X with A X = B or, where B is None, with the inverse of A."""
    given = x if b is None else b
    plan = _system_plan(x, a, given, identity=b is None)
    run_planned(KERNELS, plan, a, given, x, info)


@planned
def _system_plan(
    x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, identity: bool
) -> tuple[str, int, dict[str, Any]]:
    batch, n, columns = x.shape
    size = columns_of_lanes(max(n, columns))
    shape = {"n": n, "columns": columns, "matrices": batch}
    shape |= {"from": order(a, size), "to": order(x, size)}
    shape |= {"vector": _are_vectors(b, size) and _are_vectors(x, size), "identity": identity}
    return "solve", size, {**shape, "a": layout(a), "b": layout(b), "x": layout(x)}


def _are_vectors(x: torch.Tensor, size: int) -> bool:
    """Whether each matrix is one column of `size` numbers, all of them one behind the other."""
    return x.shape[1:] == (size, 1) and x.stride()[:2] == (size, 1)
