"""Norms as modules of torch.nn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from anymetal.ops.norms.group_norm import group_norm
from anymetal.ops.norms.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm

__all__ = [
    "AddLayerNorm",
    "AddRMSNorm",
    "GroupNorm",
    "LayerNorm",
    "RMSNorm",
]

Tensor = torch.Tensor


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
