"""solve_triangular: systems with a triangular matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from anymetal.linalg.algorithms import triangular
from anymetal.linalg.algorithms.matrices import flat
from anymetal.linalg.examples import case, conditioned, cost, random
from anymetal.linalg.requirements import (
    batch_of,
    broadcast,
    check_equation,
    check_matrix,
    check_together,
    in_float,
    wide,
)
from anymetal.ops.declare import Call, Gradients, operator

_CASES = (
    case("empty", (conditioned, (0, 0)), (random, (0, 3)), upper=True),
    case("", (conditioned, (1, 1)), (random, (1, 1)), upper=False),
    case("", (conditioned, (2, 5, 5)), (random, (2, 5, 33)), upper=False, unitriangular=True),
    case("", (conditioned, (31, 31)), (random, (2, 4, 31)), upper=True, left=False),
    case("", (conditioned, (3, 1, 37, 37)), (random, (2, 37, 3)), upper=True),
)


@operator(
    source="algorithms/triangular.metal",
    reference=torch.linalg.solve_triangular,
    baseline=in_float(torch.linalg.solve_triangular),
    cases=_CASES,
    cost=cost(lambda n, _: n * n),
)
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X with A X = B, or X A = B where not `left`; one triangle of A is read.

    As torch.linalg.solve_triangular; a unitriangular A has ones on its diagonal, which is not read.
    """
    check_matrix("solve_triangular", "A", A, square=True)
    check_together("solve_triangular", A, "B", B)
    check_matrix("solve_triangular", "B", B)
    check_equation("solve_triangular", A, B, left=left)
    batch = batch_of(A, B)
    return B.new_empty(*batch, *B.shape[-2:])


@solve_triangular.run
def _(
    output: Tensor,
    A: Tensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> None:
    a, b = (flat(matrix) for matrix in broadcast(A, B))
    if left:
        x = triangular.solve(a, b, upper=upper, unitriangular=unitriangular)
    else:
        x = triangular.solve(a.mT, b.mT, upper=not upper, unitriangular=unitriangular).mT
    output.copy_(x.reshape(output.shape))


@solve_triangular.backward(keep=["A", "B", "output"])
def _(call: Call, grad: Tensor) -> Gradients:
    a, x, grad = wide(call.A, call.output, grad)
    if a.dtype != call.A.dtype:
        x = solve_triangular(
            a, wide(call.B), upper=call.upper, left=call.left, unitriangular=call.unitriangular
        )
    grad_b = solve_triangular(
        a.mT, grad, upper=not call.upper, left=call.left, unitriangular=call.unitriangular
    )
    grad_a = -(grad_b @ x.mT) if call.left else -(x.mT @ grad_b)
    off = int(call.unitriangular)
    grad_a = grad_a.triu(off) if call.upper else grad_a.tril(-off)
    return {
        "A": grad_a.sum_to_size(call.A.shape).to(call.A.dtype),
        "B": grad_b.sum_to_size(call.B.shape).to(call.B.dtype),
    }
