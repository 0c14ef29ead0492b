"""Blocks of a transformer with LoRA beside their weights: the gated layer and attention.

They are made of this library's operators, and differentiated through them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

from anymetal.ops.activations import swiglu
from anymetal.ops.attention import scaled_dot_product_attention
from anymetal.ops.lora.lora_linear import lora_linear
from anymetal.ops.matmul import linear
from anymetal.ops.norms import rms_norm
from anymetal.ops.quantised.linear import quantized_linear
from anymetal.ops.quantised.quantize import Quantized
from anymetal.ops.rope import rope

Tensor = torch.Tensor
Weight = torch.Tensor | Quantized
Pair = tuple[torch.Tensor, torch.Tensor]


def projected(
    input: Tensor, weight: Weight, lora: Pair | None, scale: float, residual: Tensor | None = None
) -> Tensor:
    """A linear layer without a bias, with a and b beside it where they are given."""
    if lora is not None:
        plain = lora_linear(input, weight, *lora, scale=scale)
    elif isinstance(weight, Quantized):
        plain = quantized_linear(input, weight)
    else:
        return linear(input, weight, residual=residual)
    return plain if residual is None else plain + residual


def swiglu_mlp(
    input: Tensor,
    gate_weight: Weight,
    up_weight: Weight,
    down_weight: Weight,
    *,
    gate_lora: Pair | None = None,
    up_lora: Pair | None = None,
    down_lora: Pair | None = None,
    scale: float = 1.0,
    recompute: bool = False,
) -> Tensor:
    """(silu(input @ gate.T) * (input @ up.T)) @ down.T, with LoRA on each weight that has a pair.

    A pair is (a, b), as of lora_linear; weights may be quantised. With `recompute` the hidden
    activations are computed again for the gradient, otherwise they are kept for it.
    """

    def layer(input: Tensor) -> Tensor:
        gate = projected(input, gate_weight, gate_lora, scale)
        up = projected(input, up_weight, up_lora, scale)
        return projected(swiglu(gate, up), down_weight, down_lora, scale)

    return _kept_or_not(layer, input, recompute)


def lora_attention(
    input: Tensor,
    norm_weight: Tensor,
    q_weight: Weight,
    k_weight: Weight,
    v_weight: Weight,
    o_weight: Weight,
    *,
    heads: int,
    kv_heads: int | None = None,
    q_lora: Pair | None = None,
    k_lora: Pair | None = None,
    v_lora: Pair | None = None,
    o_lora: Pair | None = None,
    scale: float = 1.0,
    eps: float | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    base: float = 10000.0,
    is_causal: bool = True,
    recompute: bool = False,
) -> Tensor:
    """input + attention(rms_norm(input)), with LoRA on each weight that has a pair (a, b).

    `input` is [..., sequence, features]. Queries, keys and values are projected, the first two
    turned by `rope` (tables `cos` and `sin`, or angles by `base`), and what attention gives is
    projected back. `kv_heads` below `heads` share keys. `recompute` keeps nothing but the input.
    """
    shared = kv_heads or heads
    rows = q_weight.shape[0]
    if rows % heads or heads % shared:
        raise ValueError(
            f"lora_attention: arguments 'heads' and 'kv_heads' expect heads that divide the {rows}"
            f" rows of 'q_weight', and kv_heads that divide heads, got {heads} and {shared}"
        )

    def split(states: Tensor, count: int) -> Tensor:
        return states.view(*states.shape[:-1], count, -1).transpose(-3, -2)

    def block(input: Tensor) -> Tensor:
        normed = rms_norm(input, input.shape[-1:], norm_weight, eps)
        q = split(projected(normed, q_weight, q_lora, scale), heads)
        k = split(projected(normed, k_weight, k_lora, scale), shared)
        v = split(projected(normed, v_weight, v_lora, scale), shared)
        q, k = rope(q, k, cos, sin, base=base)
        states = scaled_dot_product_attention(
            q, k, v, is_causal=is_causal, enable_gqa=shared != heads
        )
        joined = states.transpose(-3, -2).flatten(-2)
        return projected(joined, o_weight, o_lora, scale, residual=input)

    return _kept_or_not(block, input, recompute)


def _kept_or_not(layer: Callable[[Tensor], Tensor], input: Tensor, recompute: bool) -> Tensor:
    if not recompute:
        return layer(input)
    result: Tensor = checkpoint(layer, input, use_reentrant=False, preserve_rng_state=False)
    return result
