"""Cholesky factors: cholesky, cholesky_ex, cholesky_solve and cholesky_inverse."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anymetal.linalg.algorithms import cholesky as algorithm
from anymetal.linalg.algorithms.matrices import deliver, flat, room_in
from anymetal.linalg.examples import case, conditioned, cost, positive, random
from anymetal.linalg.outputs import with_out
from anymetal.linalg.ratios import Ratios, of_cholesky
from anymetal.linalg.requirements import (
    Named,
    check_dtype,
    check_matrix,
    dtype_name,
    in_float,
    named,
    raise_failed,
    wide,
)
from anymetal.linalg.triangular import solve_triangular
from anymetal.ops.declare import Call, Gradients, operator

_CASES = (
    case("empty", (positive, (2, 0, 0))),
    case("", (positive, (1, 1))),
    case("", (positive, (3, 7, 7)), upper=True),
    case("", (positive, (2, 2, 33, 33))),
)
_BENCH = tuple(case("", (positive, shape)) for shape in ((1000, 8, 8), (1000, 32, 32), (512, 512)))


def _reference(A: Tensor, *, upper: bool = False, raising: str = "") -> tuple[Tensor, Tensor]:
    factor, info = torch.linalg.cholesky_ex(A, upper=upper)
    return factor, info


def _ratios(results: list[Tensor], A: Tensor, *, upper: bool = False, **_: Any) -> Ratios:
    return of_cholesky(A, results[0].mT if upper else results[0])


@operator(
    source="algorithms/cholesky.metal",
    reference=_reference,
    baseline=in_float(_reference),
    cases=_CASES,
    bench=_BENCH,
    cost=cost(lambda n, _: n**3 / 3),
    results=("L", "info"),
    ratios=_ratios,
    name="cholesky_ex",
)
def _cholesky_ex(A: Tensor, *, upper: bool = False, raising: str = "") -> tuple[Tensor, Tensor]:
    """`raising` names the function in whose name a failure is raised; empty, none is."""
    check_matrix((raising or "cholesky_ex").removeprefix("linalg."), "A", A, square=True)
    info = torch.empty(A.shape[:-2], dtype=torch.int32, device=A.device)
    return torch.empty_like(A, memory_format=torch.contiguous_format), info


@_cholesky_ex.run
def _(output: tuple[Tensor, Tensor], A: Tensor, *, upper: bool = False, raising: str = "") -> None:
    a = flat(A)
    room = room_in(output[0])
    info = output[1]
    algorithm.factor(a.mT if upper else a, room.mT if upper else room, info.view(-1))
    deliver(output[0], room)
    if raising:
        raise_failed(info, raising, _words)


def _words(order: int) -> str:
    return (
        "The factorization could not be completed because the input is not positive-definite (the"
        f" leading minor of order {order} is not positive-definite)."
    )


@_cholesky_ex.backward(keep=["A", "L"])
def _(call: Call, grad: Tensor, grad_info: Tensor) -> Gradients:
    lower, grad = wide(call.L, grad)
    if call.L.dtype != torch.float32:
        lower, _ = _cholesky_ex(wide(call.A), upper=call.upper)
    if call.upper:
        lower, grad = lower.mT, grad.mT
    half = (lower.mT @ grad).tril()
    inner = (half + half.tril(-1).mT) / 2
    inner = solve_triangular(lower.mT, inner, upper=True)
    outer = solve_triangular(lower, inner, upper=False, left=False)
    return {"A": outer.to(call.A.dtype)}


@with_out
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """L with A = L L' (or U with A = U' U), as torch.linalg.cholesky.

    Raises LinAlgError where A is not positive definite.
    """
    return _cholesky_ex(A, upper=upper, raising="linalg.cholesky")[0]


@with_out
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Named:
    """The factor and info: the order of the first minor that is not positive definite, or 0."""
    raising = "linalg.cholesky_ex" if check_errors else ""
    return named("linalg_cholesky_ex", _cholesky_ex(A, upper=upper, raising=raising))


def _check_solve(B: Tensor, L: Tensor) -> None:
    for name, tensor in (("b", B), ("u", L)):
        if tensor.dim() < 2:
            raise RuntimeError(
                f"{name} should have at least 2 dimensions, but has {tensor.dim()} dimensions"
                " instead"
            )
    check_dtype("cholesky_solve", "B", B)
    if B.dtype != L.dtype:
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {dtype_name(B)} and A of"
            f" type {dtype_name(L)} instead."
        )
    rows, columns = L.shape[-2:]
    if rows != columns:
        raise RuntimeError(
            f"A must be batches of square matrices, but they are {rows} by {columns} matrices"
        )
    if B.shape[-2] != rows:
        raise RuntimeError(
            f"Incompatible matrix sizes for cholesky_solve: each A matrix is {rows} by {rows} but"
            f" each b matrix is {B.shape[-2]} by {B.shape[-1]}"
        )


def _read(L: Tensor, upper: bool) -> Tensor:
    """The triangle that is read: torch's own gradient has numbers in the other one, too."""
    return L.triu() if upper else L.tril()


def _solve_reference(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    return torch.cholesky_solve(B, _read(L, upper), upper)


@operator(
    source="algorithms/triangular.metal",
    reference=_solve_reference,
    baseline=in_float(_solve_reference),
    cases=(
        case("empty", (random, (0, 3)), (conditioned, (0, 0))),
        case("", (random, (2, 5, 3)), (conditioned, (2, 5, 5)), upper=True),
        case("", (random, (2, 37, 3)), (conditioned, (37, 37))),
    ),
    bench=[case("", (random, (1000, 8, 1)), (conditioned, (1000, 8, 8)))],
    cost=cost(lambda n, columns: 2 * n * n * columns),
    made_of_others=True,
    name="cholesky_solve",
)
def _cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    _check_solve(B, L)
    right, lower = wide(B, L.mT if upper else L)
    half = solve_triangular(lower, right, upper=False)
    return solve_triangular(lower.mT, half, upper=True).to(B.dtype)


@with_out
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with A X = B for the factor L of A, as torch.cholesky_solve."""
    return _cholesky_solve(B, L, upper)


def _inverse_reference(L: Tensor, upper: bool = False) -> Tensor:
    return torch.cholesky_inverse(_read(L, upper), upper)


@operator(
    source="algorithms/triangular.metal",
    reference=_inverse_reference,
    baseline=in_float(_inverse_reference),
    cases=(
        case("empty", (conditioned, (2, 0, 0))),
        case("", (conditioned, (2, 5, 5))),
        case("", (conditioned, (37, 37)), upper=True),
    ),
    bench=[case("", (conditioned, (1000, 8, 8)))],
    cost=cost(lambda n, _: 2 * n**3),
    made_of_others=True,
    name="cholesky_inverse",
)
def _cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    check_matrix("cholesky_inverse", "A", L, square=True)
    identity = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device).expand(L.shape)
    return _cholesky_solve(identity, L, upper)


@with_out
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A from its factor L, as torch.cholesky_inverse."""
    return _cholesky_inverse(L, upper)
