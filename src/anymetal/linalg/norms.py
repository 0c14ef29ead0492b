"""Norms of matrices: matrix_norm."""

from __future__ import annotations

import torch
from torch import Tensor

from anymetal.linalg.examples import case, cost, spread
from anymetal.linalg.outputs import with_out
from anymetal.linalg.requirements import check_dtype, check_matrix, in_float, wide
from anymetal.linalg.svd import svdvals
from anymetal.ops.declare import operator
from anymetal.ops.declare.checks import FLOATS

_NUMBERS = {2: "2", -2: "-2", 1: "1", -1: "-1", torch.inf: "inf", -torch.inf: "-inf"}


def order_name(ord: float | str) -> str | None:
    """The name that operators know a norm by, None where there is no such norm."""
    if isinstance(ord, str):
        return ord if ord in ("fro", "nuc") else None
    return next((name for number, name in _NUMBERS.items() if number == ord), None)


def exact_order(name: str) -> float | str:
    """The norm as torch names it."""
    return name if name in ("fro", "nuc") else float(name)


def _reference(
    A: Tensor, ord: str = "fro", rows: int = -2, columns: int = -1, keepdim: bool = False
) -> Tensor:
    norm: Tensor = torch.linalg.matrix_norm(A, exact_order(ord), (rows, columns), keepdim)
    return norm


@operator(
    source="algorithms/jacobi.metal",
    reference=_reference,
    baseline=in_float(_reference),
    cases=(
        case("empty", (spread, (2, 0, 3)), ord="nuc"),
        case("", (spread, (2, 9, 4)), ord="1"),
        case("", (spread, (2, 9, 4)), ord="nuc"),
        case("", (spread, (5, 31)), ord="2"),
    ),
    bench=[case("", (spread, (1000, 8, 8)), ord="2")],
    cost=cost(lambda m, n: 4 * m * n * min(m, n) + 22 * min(m, n) ** 3),
    made_of_others=True,
    name="matrix_norm",
)
def norm_of(
    A: Tensor, ord: str = "fro", rows: int = -2, columns: int = -1, keepdim: bool = False
) -> Tensor:
    """The norm of the matrices that two dimensions hold; `ord` as `order_name` names it."""
    check_matrix("matrix_norm", "A", A)
    places = rows % A.dim(), columns % A.dim()
    if ord in ("1", "-1", "inf", "-inf"):
        return _of_sums(wide(A).abs(), float(ord), places, keepdim).to(A.dtype)
    norm = _norm(wide(A).movedim(places, (-2, -1)), ord).to(A.dtype)
    if keepdim:
        for kept in sorted(places):
            norm = norm.unsqueeze(kept)
    return norm


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
    name = order_name(ord)
    if name is None:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    matrix = A if A.dtype in FLOATS else A.float()
    return norm_of(matrix, name, rows, columns, keepdim).to(A.dtype)


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


def _norm(matrix: Tensor, ord: str) -> Tensor:
    if ord == "fro":
        norm: Tensor = torch.linalg.vector_norm(matrix, dim=(-2, -1))
        return norm
    if ord == "nuc":
        return svdvals(matrix).sum(-1)
    values = svdvals(matrix)
    if ord == "-2":
        return values.amin(-1)
    return values.amax(-1) if values.shape[-1] else values.sum(-1)
