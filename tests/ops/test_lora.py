"""LoRA: layers and blocks against the same in torch's operators, in float64, with gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from anymetal import ops
from anymetal.ops.quantised.quantize import Quantized


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) / shape[-1] ** 0.5


def differentiated(function: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    held = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    result = function(*held)
    upstream = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).view(result.shape)
    return [result.detach(), *torch.autograd.grad(result, held, upstream)]


def same(ours: Any, exact: Any, tensors: list[torch.Tensor], tolerance: float = 1e-5) -> None:
    mine = differentiated(ours, tensors)
    truth = differentiated(exact, [tensor.double() for tensor in tensors])
    for result, right in zip(mine, truth, strict=True):
        torch.testing.assert_close(result.double(), right, rtol=tolerance, atol=tolerance)


def thin(x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w) + 0.5 * F.linear(F.linear(x, a), b)


def test_quantised_weight_passes_gradients_to_all_but_itself() -> None:
    weight = ops.quantize(random(12, 64), "int4")
    dense = ops.dequantize(weight).double()
    assert isinstance(weight, Quantized)
    same(
        lambda x, a, b, bias: ops.lora_linear(x, weight, a, b, bias, 0.5),
        lambda x, a, b, bias: thin(x, dense, a, b) + bias,
        [random(5, 64), random(4, 64, seed=1), random(12, 4, seed=2), random(12, seed=3)],
        1e-4,
    )


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
def test_gated_layer_with_lora_on_each_weight(recompute: bool) -> None:
    def ours(x: Any, g: Any, u: Any, d: Any, *pairs: Any) -> Any:
        named = {"gate_lora": pairs[:2], "up_lora": pairs[2:4], "down_lora": pairs[4:]}
        return ops.swiglu_mlp(x, g, u, d, **named, scale=0.5, recompute=recompute)

    def exact(x: Any, g: Any, u: Any, d: Any, *pairs: Any) -> Any:
        hidden = F.silu(thin(x, g, *pairs[:2])) * thin(x, u, *pairs[2:4])
        return thin(hidden, d, *pairs[4:])

    weights = [random(20, 12, seed=1), random(20, 12, seed=2), random(12, 20, seed=3)]
    pairs = [t for w in weights for t in (random(3, w.shape[1], seed=4), random(w.shape[0], 3))]
    same(ours, exact, [random(2, 5, 12), *weights, *pairs])


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
def test_attention_block_with_lora(recompute: bool) -> None:
    heads, shared, wide = 4, 2, 8
    angles = torch.arange(9.0)[:, None] * 100.0 ** -(torch.arange(wide // 2) / (wide // 2))

    def turned(x: torch.Tensor) -> torch.Tensor:
        cos, sin = angles.cos().to(x), angles.sin().to(x)
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def split(x: torch.Tensor, count: int) -> torch.Tensor:
        return x.unflatten(-1, (count, wide)).transpose(1, 2)

    def ours(x: Any, norm: Any, q: Any, k: Any, v: Any, o: Any, *pairs: Any) -> Any:
        return ops.lora_attention(
            x, norm, q, k, v, o, heads=heads, kv_heads=shared, q_lora=pairs[:2], o_lora=pairs[2:],
            scale=0.5, eps=1e-6, cos=angles.cos(), sin=angles.sin(), recompute=recompute,
        )  # fmt: skip

    def exact(x: Any, norm: Any, q: Any, k: Any, v: Any, o: Any, *pairs: Any) -> Any:
        normed = F.rms_norm(x, (32,), norm, 1e-6)
        queries = turned(split(thin(normed, q, *pairs[:2]), heads))
        keys = turned(split(F.linear(normed, k), shared)).repeat_interleave(2, 1)
        values = split(F.linear(normed, v), shared).repeat_interleave(2, 1)
        states = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return x + thin(states.transpose(1, 2).flatten(2), o, *pairs[2:])

    weights = [random(32, 32, seed=1), random(16, 32, seed=2), random(16, 32), random(32, 32)]
    pairs = [random(3, 32, seed=5), random(32, 3), random(3, 32, seed=6), random(32, 3, seed=7)]
    same(ours, exact, [4 * random(2, 9, 32), random(32) + 1, *weights, *pairs])


def test_module_trains_its_pair_alone_and_merges() -> None:
    layer = torch.nn.Linear(64, 12)
    module = ops.modules.LoRALinear(layer, rank=4, alpha=8.0)
    x = random(5, 64)
    torch.testing.assert_close(module(x), layer(x))
    assert [name for name, p in module.named_parameters() if p.requires_grad] == ["a", "b"]
    torch.nn.init.normal_(module.b)
    torch.testing.assert_close(module.merged()(x), module(x), rtol=1e-4, atol=1e-4)
    quantised = ops.modules.LoRALinear(ops.modules.QuantizedLinear.from_float(layer), rank=4)
    quantised(x).sum().backward()
    assert quantised.b.grad is not None
    with pytest.raises(ValueError, match="'rank' expects 1 or more, got 0"):
        ops.modules.LoRALinear(layer, rank=0)


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"'b' expects shape \[12, 4\] .* got \[4, 12\]"):
        ops.lora_linear(random(5, 8), random(12, 8), random(4, 8), random(4, 12))
    with pytest.raises(ValueError, match=r"'heads' and 'kv_heads' .* got 5 and 5"):
        ops.lora_attention(random(2, 8), random(8), *[random(8, 8)] * 4, heads=5)
