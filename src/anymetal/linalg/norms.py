"""Norms of matrices: matrix_norm."""

from __future__ import annotations

import torch
from torch import Tensor

from anymetal.linalg.outputs import with_out
from anymetal.linalg.requirements import check_dtype
from anymetal.linalg.svd import svdvals


@with_out
def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """As torch.linalg.matrix_norm: "fro", "nuc", 2, -2, 1, -1, inf and -inf."""
    check_dtype("matrix_norm", "A", A)
    if A.dim() < 2:
        raise RuntimeError(
            "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."
        )
    if len(dim) != 2:
        raise RuntimeError(
            "linalg.matrix_norm: dim must be a 2-tuple. Got " + " ".join(str(d) for d in dim)
        )
    rows, columns = (_place(A, d) for d in dim)
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({rows}, {columns})")
    if dtype is not None:
        A = A.to(dtype)
    if ord in (1, -1, torch.inf, -torch.inf) and not isinstance(ord, str):
        return _of_sums(A.float().abs(), ord, (rows, columns), keepdim).to(A.dtype)
    norm = _norm(A.float().movedim((rows, columns), (-2, -1)), ord).to(A.dtype)
    if keepdim:
        for kept in sorted((rows, columns)):
            norm = norm.unsqueeze(kept)
    return norm


def _of_sums(sizes: Tensor, ord: float, places: tuple[int, int], keepdim: bool) -> Tensor:
    """The largest or smallest sum of a column (1) or a row (inf)."""
    summed, other = places if abs(ord) == 1 else reversed(places)
    if other > summed and not keepdim:
        other -= 1
    sums = sizes.sum(summed, keepdim)
    if ord < 0:
        return sums.amin(other, keepdim)
    return sums.amax(other, keepdim) if sums.shape[other] else sums.sum(other, keepdim)


def _place(a: Tensor, dimension: int) -> int:
    if not -a.dim() <= dimension < a.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-a.dim()}, {a.dim() - 1}], but"
            f" got {dimension})"
        )
    return dimension % a.dim()


def _norm(matrix: Tensor, ord: float | str) -> Tensor:
    if ord == "fro":
        norm: Tensor = torch.linalg.vector_norm(matrix, dim=(-2, -1))
        return norm
    if ord == "nuc":
        return svdvals(matrix).sum(-1)
    if ord in (2, -2):
        values = svdvals(matrix)
        if ord == -2:
            return values.amin(-1)
        return values.amax(-1) if values.shape[-1] else values.sum(-1)
    raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
