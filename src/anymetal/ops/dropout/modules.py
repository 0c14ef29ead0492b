"""dropout as a module of torch.nn."""

from __future__ import annotations

import torch
from torch import nn

from anymetal.ops.dropout.dropout import dropout

__all__ = ["Dropout"]


class Dropout(nn.Dropout):
    """torch.nn.Dropout; `inplace` is refused, since no mask is stored."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if inplace:
            raise NotImplementedError("Dropout: argument 'inplace' expects False")
        super().__init__(p)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return dropout(input, self.p, self.training)
