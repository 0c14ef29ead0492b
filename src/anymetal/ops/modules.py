"""The operators as modules of torch.nn.

Where torch has the module, ours is a subclass of it: same arguments, same parameters, same
state_dict, another forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from anymetal.ops.activations.biased import bias_gelu, bias_silu
from anymetal.ops.activations.gated import geglu, swiglu
from anymetal.ops.activations.plain import gelu, relu_squared, sigmoid, silu
from anymetal.ops.norms.group_norm import group_norm
from anymetal.ops.norms.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from anymetal.ops.rope.rope import BASE, rope
from anymetal.ops.softmax.softmax import log_softmax, softmax

__all__ = [
    "GELU",
    "AddLayerNorm",
    "AddRMSNorm",
    "BiasGELU",
    "BiasSiLU",
    "GeGLU",
    "GroupNorm",
    "LayerNorm",
    "LogSoftmax",
    "RMSNorm",
    "ReLUSquared",
    "RotaryEmbedding",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "SwiGLU",
]

Tensor = torch.Tensor


# --- norms ----------------------------------------------------------------------------------------


class RMSNorm(nn.RMSNorm):
    """torch.nn.RMSNorm; with `weight_offset=1` Gemma's, whose weights are stored minus 1."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        weight_offset: float = 0.0,
    ) -> None:
        self.weight_offset = weight_offset
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)

    def reset_parameters(self) -> None:
        """Weights that multiply by 1."""
        if self.elementwise_affine:
            nn.init.constant_(self.weight, 1.0 - self.weight_offset)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(
            x, self.normalized_shape, self.weight, self.eps, weight_offset=self.weight_offset
        )

    def extra_repr(self) -> str:
        words = super().extra_repr()
        return f"{words}, weight_offset={self.weight_offset}" if self.weight_offset else words


class AddRMSNorm(RMSNorm):
    """RMSNorm of `x + residual`: gives the normalised sum, and the sum."""

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return add_rms_norm(
            x,
            residual,
            self.normalized_shape,
            self.weight,
            self.eps,
            weight_offset=self.weight_offset,
        )


class LayerNorm(nn.LayerNorm):
    """torch.nn.LayerNorm."""

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class AddLayerNorm(nn.LayerNorm):
    """LayerNorm of `input + residual`: gives the normalised sum, and the sum."""

    def forward(self, input: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return add_layer_norm(
            input, residual, self.normalized_shape, self.weight, self.bias, self.eps
        )


class GroupNorm(nn.GroupNorm):
    """torch.nn.GroupNorm."""

    def forward(self, input: Tensor) -> Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


# --- activations ----------------------------------------------------------------------------------


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


# --- softmax --------------------------------------------------------------------------------------


class Softmax(nn.Softmax):
    """torch.nn.Softmax; `dim` must be given, where torch guesses one and warns."""

    def forward(self, input: Tensor) -> Tensor:
        return softmax(input, _dim("Softmax", self.dim))


class LogSoftmax(nn.LogSoftmax):
    """torch.nn.LogSoftmax; `dim` must be given, where torch guesses one and warns."""

    def forward(self, input: Tensor) -> Tensor:
        return log_softmax(input, _dim("LogSoftmax", self.dim))


def _dim(name: str, dim: int | None) -> int:
    if dim is None:
        raise ValueError(f"{name}: argument 'dim' expects a dimension, got None. Pass dim=-1")
    return dim


# --- positions ------------------------------------------------------------------------------------


class RotaryEmbedding(nn.Module):
    """Turns q and k by their positions. It has no parameters: angles are computed in the kernel."""

    def __init__(
        self,
        base: float = BASE,
        rotary_dim: int | None = None,
        interleaved: bool = False,
        sequence_dim: int = -2,
        frequencies: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.base = base
        self.rotary_dim = rotary_dim
        self.interleaved = interleaved
        self.sequence_dim = sequence_dim
        self.frequencies = None if frequencies is None else [float(f) for f in frequencies]

    def forward(
        self,
        q: Tensor,
        k: Tensor | None = None,
        *,
        positions: Tensor | None = None,
        offset: int = 0,
    ) -> Any:
        return rope(
            q,
            k,
            positions=positions,
            base=self.base,
            offset=offset,
            rotary_dim=self.rotary_dim,
            interleaved=self.interleaved,
            sequence_dim=self.sequence_dim,
            frequencies=self.frequencies,
        )

    def extra_repr(self) -> str:
        words = f"base={self.base}, rotary_dim={self.rotary_dim}"
        return f"{words}, interleaved={self.interleaved}, sequence_dim={self.sequence_dim}"
