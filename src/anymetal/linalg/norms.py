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
    rows, columns = (d % A.dim() for d in dim)
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    if dtype is not None:
        A = A.to(dtype)
    moved = A.float().movedim((rows, columns), (-2, -1))
    norm = _norm(moved, ord).to(A.dtype)
    if keepdim:
        for kept in sorted((rows, columns)):
            norm = norm.unsqueeze(kept)
    return norm


def _norm(matrix: Tensor, ord: float | str) -> Tensor:
    if ord == "fro":
        norm: Tensor = torch.linalg.vector_norm(matrix, dim=(-2, -1))
        return norm
    if ord == "nuc":
        return svdvals(matrix).sum(-1)
    if ord in (2, -2):
        values = svdvals(matrix)
        return values.amax(-1) if ord == 2 else values.amin(-1)
    if ord in (1, -1, torch.inf, -torch.inf) and not isinstance(ord, str):
        sums = matrix.abs().sum(-2 if abs(ord) == 1 else -1)
        return sums.amax(-1) if ord > 0 else sums.amin(-1)
    raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
