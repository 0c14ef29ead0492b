"""Losses as modules of torch.nn."""

from __future__ import annotations

import math

import torch
from torch import nn

from anymetal.ops.losses.cross_entropy import cross_entropy
from anymetal.ops.losses.linear_cross_entropy import linear_cross_entropy

__all__ = ["CrossEntropyLoss", "LinearCrossEntropyLoss"]

Tensor = torch.Tensor


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss with `z_loss` and `softcap`."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        softcap: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        self.z_loss, self.softcap = z_loss, softcap

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
            softcap=self.softcap,
        )


class LinearCrossEntropyLoss(nn.Module):
    """A projection to classes and its loss, with the parameters of torch.nn.Linear."""

    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        classes: int,
        bias: bool = True,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        softcap: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        made = torch.empty(classes, in_features, device=device, dtype=dtype)
        self.weight = nn.Parameter(made.uniform_(-bound, bound))
        self.bias = nn.Parameter(made.new_empty(classes).uniform_(-bound, bound)) if bias else None
        self.ignore_index, self.reduction = ignore_index, reduction
        self.label_smoothing, self.z_loss, self.softcap = label_smoothing, z_loss, softcap

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return linear_cross_entropy(
            input,
            self.weight,
            target,
            self.bias,
            self.ignore_index,
            self.reduction,
            self.label_smoothing,
            self.z_loss,
            self.softcap,
        )
