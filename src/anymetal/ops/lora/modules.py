"""nn.Linear, or a quantised one, with LoRA beside it."""

from __future__ import annotations

import math

import torch
from torch import nn

from anymetal.ops.lora.lora_linear import lora_linear
from anymetal.ops.quantised.modules import PackedLinear, QuantizedLinear

__all__ = ["LoRALinear"]


class LoRALinear(nn.Module):
    """A frozen layer, nn.Linear or one of packed weights, and the product of `a` and `b` beside it.

    `b` starts at zero, so that a new one gives what the layer gives; alpha / rank is the scale.
    `dtype` is that of the activations, else the layer's: of its weight or scales, torch's default
    where blocks of a file do not say it.
    """

    def __init__(
        self,
        layer: nn.Linear | QuantizedLinear | PackedLinear,
        rank: int = 8,
        alpha: float | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if rank < 1:
            raise ValueError(f"LoRALinear: argument 'rank' expects 1 or more, got {rank}")
        if isinstance(layer, QuantizedLinear) and layer.activation is not None:
            raise ValueError(
                f"LoRALinear: argument 'layer' expects no activation, got {layer.activation!r}"
            )
        self.layer = layer.requires_grad_(False)
        like = _like(layer) if dtype is None else _like(layer).to(dtype)
        bound = 1 / math.sqrt(layer.in_features)
        made = like.new_empty(rank, layer.in_features).uniform_(-bound, bound)
        self.a = nn.Parameter(made)
        self.b = nn.Parameter(like.new_zeros(layer.out_features, rank))
        self.rank, self.scale = rank, (rank if alpha is None else alpha) / rank

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        layer = self.layer
        weight = layer.quantized if isinstance(layer, QuantizedLinear) else layer.weight
        return lora_linear(input, weight, self.a, self.b, layer.bias, self.scale)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain layer that gives the same; of a layer that is not quantised."""
        if not isinstance(self.layer, nn.Linear):
            raise TypeError("LoRALinear: a quantised layer cannot take the product in. Keep it")
        plain, weight = self.layer, self.layer.weight
        result = nn.Linear(
            plain.in_features, plain.out_features, plain.bias is not None, weight.device,
            weight.dtype,
        )  # fmt: skip
        result.load_state_dict(plain.state_dict())
        result.weight += self.scale * self.b @ self.a
        return result


def _like(layer: nn.Linear | QuantizedLinear | PackedLinear) -> torch.Tensor:
    """An empty tensor of a layer's dtype, where it is."""
    if isinstance(layer, PackedLinear):
        return layer.blocks.new_empty(0, dtype=torch.get_default_dtype())
    if isinstance(layer, nn.Linear):
        return layer.weight.new_empty(0)
    dtype = torch.get_default_dtype() if layer.kind.is_ggml else layer.scales.dtype
    return layer.scales.new_empty(0, dtype=dtype)
