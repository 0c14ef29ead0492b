"""The exponential of a matrix: matrix_exp."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from anymetal.linalg.algorithms.matrices import flat, product
from anymetal.linalg.examples import case, cost, random
from anymetal.linalg.requirements import check_matrix, in_float, wide
from anymetal.ops.declare import Call, Gradients, operator

# Taylor's series up to the 16th power: below this norm its rest is a rounding error of float32.
_DEGREE, _NORM = 16, 2.4
_COEFFICIENTS = [1.0 / math.factorial(power) for power in range(_DEGREE + 1)]


@operator(
    source="../ops/matmul/matmul.metal",
    reference=torch.linalg.matrix_exp,
    baseline=in_float(torch.linalg.matrix_exp),
    cases=(
        case("empty", (random, (2, 0, 0))),
        case("", (random, (1, 1))),
        case("", (random, (2, 5, 5))),
    ),
    cost=cost(lambda n, _: 16 * n**3),
)
def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices, as torch.linalg.matrix_exp."""
    check_matrix("matrix_exp", "A", A, square=True)
    return A.new_empty(A.shape)


@matrix_exp.run
def _(output: Tensor, A: Tensor) -> None:
    if output.numel() == 0:
        return
    a = flat(A)
    norms = a.abs().sum(-2).amax(-1)
    halvings = torch.log2(norms / _NORM).ceil().clamp(min=0.0).nan_to_num(posinf=0.0)
    power = _series(a * torch.exp2(-halvings)[:, None, None])
    for step in range(int(halvings.amax())):
        squared = product(power, power)
        power = torch.where((step < halvings)[:, None, None], squared, power)
    output.copy_(power.reshape(output.shape))


def _series(a: Tensor) -> Tensor:
    """Taylor's polynomial in four parts of fourth powers: six products."""
    identity = torch.eye(a.shape[-1], device=a.device).expand(a.shape)
    second = product(a, a)
    third = product(second, a)
    fourth = product(second, second)
    powers = [identity, a, second, third]
    result = _COEFFICIENTS[_DEGREE] * fourth
    for part in (3, 2, 1, 0):
        low = sum(
            (_COEFFICIENTS[4 * part + i] * power for i, power in enumerate(powers)),
            start=torch.zeros_like(a),
        )
        result = low + (product(fourth, result) if part < 3 else result)
    return result


@matrix_exp.backward(keep=["A"])
def _(call: Call, grad: Tensor) -> Gradients:
    """The upper right block of the exponential of [[A', grad], [0, A']]."""
    a, grad = wide(call.A, grad)
    upper = torch.cat([a.mT, grad], -1)
    lower = torch.cat([torch.zeros_like(a), a.mT], -1)
    both = matrix_exp(torch.cat([upper, lower], -2))
    n = a.shape[-1]
    return {"A": both[..., :n, n:].to(call.A.dtype)}
