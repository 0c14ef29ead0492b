"""softmax and log_softmax as modules of torch.nn."""

from __future__ import annotations

import torch
from torch import nn

from anymetal.ops.softmax.softmax import log_softmax, softmax

__all__ = [
    "LogSoftmax",
    "Softmax",
]

Tensor = torch.Tensor


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
