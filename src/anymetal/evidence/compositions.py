"""What people write where there is no fused operator: the third contender of the benchmarks.

An operator may bring its own as `naive`; the table here has the well-known ones. Each is written as
it stands in model code, in the dtype of its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from anymetal.ops.declare.declare import Operator

Function = Callable[..., Any]
Tensor = torch.Tensor


def naive_of(operator: Operator) -> Function | None:
    """The composition of plain torch operators that does the same, or None."""
    return operator.naive or NAIVE.get(operator.name)


def _silu(input: Tensor) -> Tensor:
    return input * torch.sigmoid(input)


def _gelu(input: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)
        return 0.5 * input * (1 + torch.tanh(inner))
    return 0.5 * input * (1 + torch.erf(input / math.sqrt(2)))


def _sigmoid(input: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-input))


def _relu_squared(input: Tensor) -> Tensor:
    return torch.clamp(input, min=0) ** 2


def _bias_gelu(input: Tensor, bias: Tensor, approximate: str = "none") -> Tensor:
    return _gelu(input + bias, approximate)


def _bias_silu(input: Tensor, bias: Tensor) -> Tensor:
    return _silu(input + bias)


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return _silu(gate) * up


def _geglu(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    return _gelu(gate, approximate) * up


def _swiglu_packed(input: Tensor) -> Tensor:
    gate, up = input.chunk(2, dim=-1)
    return _silu(gate) * up


def _geglu_packed(input: Tensor, approximate: str = "none") -> Tensor:
    gate, up = input.chunk(2, dim=-1)
    return _gelu(gate, approximate) * up


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
    "swiglu_packed": _swiglu_packed,
    "geglu_packed": _geglu_packed,
    "silu": _silu,
    "gelu": _gelu,
    "sigmoid": _sigmoid,
    "relu_squared": _relu_squared,
    "bias_gelu": _bias_gelu,
    "bias_silu": _bias_silu,
    "swiglu": _swiglu,
    "geglu": _geglu,
}
