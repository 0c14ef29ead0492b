"""Activations as modules of torch.nn."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from anymetal.ops.activations.biased import bias_gelu, bias_silu
from anymetal.ops.activations.gated import geglu, swiglu
from anymetal.ops.activations.plain import gelu, relu_squared, sigmoid, silu

__all__ = [
    "GELU",
    "BiasGELU",
    "BiasSiLU",
    "GeGLU",
    "ReLUSquared",
    "SiLU",
    "Sigmoid",
    "SwiGLU",
]

Tensor = torch.Tensor


class SiLU(nn.SiLU):
    """torch.nn.SiLU."""

    def forward(self, input: Tensor) -> Tensor:
        return silu(input, inplace=self.inplace)


class GELU(nn.GELU):
    """torch.nn.GELU."""

    def forward(self, input: Tensor) -> Tensor:
        return gelu(input, approximate=self.approximate)


class Sigmoid(nn.Sigmoid):
    """torch.nn.Sigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        return sigmoid(input)


class ReLUSquared(nn.Module):
    """The square of relu."""

    def forward(self, input: Tensor) -> Tensor:
        return relu_squared(input)


class BiasSiLU(nn.Module):
    """silu of the input plus a learned bias."""

    def __init__(self, features: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return bias_silu(input, self.bias)


class BiasGELU(nn.Module):
    """gelu of the input plus a learned bias."""

    def __init__(
        self, features: int, approximate: str = "none", device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.approximate = approximate
        self.bias = nn.Parameter(torch.zeros(features, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return bias_gelu(input, self.bias, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SwiGLU(nn.Module):
    """silu(gate) * up, of two tensors or of the halves of one."""

    def forward(self, gate: Tensor, up: Tensor | None = None) -> Tensor:
        return swiglu(gate, up)


class GeGLU(nn.Module):
    """gelu(gate) * up, of two tensors or of the halves of one."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, gate: Tensor, up: Tensor | None = None) -> Tensor:
        return geglu(gate, up, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"
