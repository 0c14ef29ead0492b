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
    simdgroups_for,
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
        size = columns_of_lanes(max(m, n))
        shape = {"rows": m, "columns": n, "matrices": batch}
        shape |= {"from": order(a, size), "to": order(lu, size)}
        KERNELS.kernel(f"lu_{size}", a.device)(
            a,
            lu,
            pivots,
            info,
            {**shape, "a": layout(a), "lu": layout(lu)},
            threads=simdgroups_for(batch, size),
            group_size=SIMDGROUP,
        )
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
    batch, n, columns = b.shape
    x = b.new_empty(batch, n, columns)
    size = columns_of_lanes(n)
    sizes = {"n": n, "matrices": batch, "columns": columns, "adjoint": adjoint}
    KERNELS.kernel(f"lu_solve_{size}", b.device)(
        lu,
        pivots,
        b,
        x,
        {**sizes, "lu": layout(lu), "b": layout(b), "x": layout(x)},
        threads=simdgroups_for(batch, size),
        group_size=SIMDGROUP,
    )
    return x


def is_small(n: int, columns: int) -> bool:
    """Whether one launch can solve a system of this size."""
    return max(n, columns) <= SIMDGROUP


def solve_small(a: torch.Tensor, b: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """Fills X with A X = B, or with the inverse of A where B is None; gives info."""
    batch, n, columns = x.shape
    info = torch.empty(batch, dtype=torch.int32, device=a.device)
    given = x if b is None else b
    size = columns_of_lanes(max(n, columns))
    shape = {"n": n, "columns": columns, "matrices": batch}
    shape |= {"from": order(a, size), "to": order(x, size)}
    shape |= {"vector": _are_vectors(given, size) and _are_vectors(x, size), "identity": b is None}
    KERNELS.kernel(f"solve_{size}", a.device)(
        a,
        given,
        x,
        info,
        {**shape, "a": layout(a), "b": layout(given), "x": layout(x)},
        threads=simdgroups_for(batch, size),
        group_size=SIMDGROUP,
    )
    return info


def _are_vectors(x: torch.Tensor, size: int) -> bool:
    """Whether each matrix is one column of `size` numbers, all of them one behind the other."""
    return x.shape[1:] == (size, 1) and x.stride()[:2] == (size, 1)
