"""What people write where there is no fused operator: the third contender of the benchmarks.

An operator may bring its own as `naive`; the table here has the well-known ones. Each is written as
it stands in model code, in the dtype of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anymetal.ops.declare import AnyOperator

Function = Callable[..., Any]
Tensor = torch.Tensor


def naive_of(operator: AnyOperator) -> Function | None:
    """The composition of plain torch operators that does the same, or None."""
    return operator.naive or NAIVE.get(operator.name)


def _axpy(alpha: float, x: Tensor, y: Tensor) -> Tensor:
    return alpha * x + y


def _softmax(input: Tensor, dim: int) -> Tensor:
    powers = torch.exp(input - input.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)


def _log_softmax(input: Tensor, dim: int) -> Tensor:
    shifted = input - input.amax(dim, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))


NAIVE: dict[str, Function] = {
    "axpy": _axpy,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
}
