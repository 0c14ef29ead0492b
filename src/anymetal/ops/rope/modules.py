"""Rotary embeddings as a module of torch.nn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from anymetal.ops.rope.rope import rope
from anymetal.ops.rope.rotation import BASE

__all__ = [
    "RotaryEmbedding",
]

Tensor = torch.Tensor


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
