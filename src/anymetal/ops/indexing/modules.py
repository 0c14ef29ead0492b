"""Tables as modules of torch.nn."""

from __future__ import annotations

import torch
from torch import nn

from anymetal.ops.indexing.embedding import embedding
from anymetal.ops.indexing.embedding_bag import embedding_bag

__all__ = ["Embedding", "EmbeddingBag"]

Tensor = torch.Tensor


class Embedding(nn.Embedding):
    """torch.nn.Embedding; `max_norm` and `sparse` are refused."""

    def forward(self, input: Tensor) -> Tensor:
        return embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
            self.scale_grad_by_freq, self.sparse,
        )  # fmt: skip


class EmbeddingBag(nn.EmbeddingBag):
    """torch.nn.EmbeddingBag; `max_norm` and `sparse` are refused."""

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        return embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip
