"""Blocks of a transformer with LoRA beside their weights: the gated layer and attention.

They are made of this library's operators, and differentiated through them. As operators of their
own they keep their arguments alone, and the gradient computes the rest again; other calls (weights
that are quantised, activations that are kept, autocast) are the same functions without that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from anymetal.ops.activations import swiglu
from anymetal.ops.attention import scaled_dot_product_attention
from anymetal.ops.declare import Call, Case, Cost, Gradients, operator
from anymetal.ops.declare.checks import check_input, check_like
from anymetal.ops.declare.signature import tensors_of
from anymetal.ops.lora.lora_linear import SOURCE, lora_linear
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


# --- a gated layer --------------------------------------------------------------------------------


def _gated(
    input: Tensor, weights: Sequence[Weight], loras: Sequence[Pair | None], scale: float
) -> Tensor:
    gate, up = (projected(input, weights[i], loras[i], scale) for i in range(2))
    return projected(swiglu(gate, up), weights[2], loras[2], scale)


def _gated_reference(
    input: Tensor,
    weights: list[Tensor],
    loras: list[Tensor],
    beside: list[bool],
    scale: float = 1.0,
) -> Tensor:
    pairs = _pairs(loras, beside)
    gate, up = (_thin(input, weights[i], pairs[i], scale) for i in range(2))
    return _thin(F.silu(gate) * up, weights[2], pairs[2], scale)


def _gated_case(rows: int, width: int, hidden: int, rank: int, beside: Sequence[bool]) -> Case:
    shapes = [(hidden, width), (hidden, width), (width, hidden)]

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        draw = _drawing(dtype, device, generator)
        weights = [draw(*shape) for shape in shapes]
        return [draw(rows, width), weights, _loras(draw, shapes, rank, beside), [*beside], 0.5], {}

    return Case(f"{rows}x{width} {hidden} hidden, {sum(beside)} of rank {rank}", make)


def _gated_cost(
    input: Tensor, weights: list[Tensor], loras: list[Tensor], *_: Any, **__: Any
) -> Cost:
    rows, read = math.prod(input.shape[:-1]), [*weights, *loras]
    return Cost(
        read=input.nbytes + sum(weight.nbytes for weight in read),
        write=input.nbytes,
        flops=2 * rows * sum(weight.numel() for weight in read),
    )


@operator(
    source=SOURCE,
    reference=_gated_reference,
    cases=[
        _gated_case(0, 4, 3, 2, (True, False, True)),
        _gated_case(5, 12, 20, 3, (True, True, True)),
        _gated_case(33, 31, 40, 4, (False, True, False)),
    ],
    bench=[_gated_case(512, 256, 512, 8, (True, True, True))],
    cost=_gated_cost,
    made_of_others=True,
)
def _swiglu_mlp(
    input: Tensor,
    weights: list[Tensor],
    loras: list[Tensor],
    beside: list[bool],
    scale: float = 1.0,
) -> Tensor:
    """`beside`: which of the three weights have a pair; `loras`: the pairs, one after the other."""
    _check("swiglu_mlp", input, weights)
    return _gated(input, weights, _pairs(loras, beside), scale)


@_swiglu_mlp.backward(keep=["input", "weights", "loras"])
def _(call: Call, grad: Tensor) -> Gradients:
    def block(values: Mapping[str, Any]) -> Tensor:
        pairs = _pairs(values["loras"], call.beside)
        return _gated(values["input"], values["weights"], pairs, call.scale)

    return _computed_again(call, ("input", "weights", "loras"), block, grad)


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
    weights, loras = (gate_weight, up_weight, down_weight), (gate_lora, up_lora, down_lora)
    check_input("swiglu_mlp", input)
    if recompute and _is_plain(input, weights):
        return _swiglu_mlp(input, _tensors(weights), *_flat(loras), scale)
    return _kept_or_not(lambda x: _gated(x, weights, loras, scale), input, recompute)


# --- attention ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Heads:
    """What attention is made with, besides its tensors."""

    heads: int
    kv_heads: int
    scale: float = 1.0
    eps: float | None = None
    base: float = 10000.0
    is_causal: bool = True

    def __post_init__(self) -> None:
        for name, count in (("heads", self.heads), ("kv_heads", self.kv_heads)):
            if count < 1:
                raise ValueError(
                    f"lora_attention: argument '{name}' expects 1 or more, got {count}"
                )

    @staticmethod
    def of(call: Any) -> _Heads:
        return _Heads(*(getattr(call, field.name) for field in fields(_Heads)))


def _attended(
    input: Tensor,
    norm_weight: Tensor,
    weights: Sequence[Weight],
    loras: Sequence[Pair | None],
    cos: Tensor | None,
    sin: Tensor | None,
    given: _Heads,
) -> Tensor:
    def split(states: Tensor, count: int) -> Tensor:
        wide = states.shape[-1] // count
        return states.view(*states.shape[:-1], count, wide).transpose(-3, -2)

    normed = rms_norm(input, input.shape[-1:], norm_weight, given.eps)
    q, k, v = (projected(normed, weights[i], loras[i], given.scale) for i in range(3))
    q, k = split(q, given.heads), split(k, given.kv_heads)
    q, k = rope(q, k, cos, sin, base=given.base)
    states = scaled_dot_product_attention(
        q,
        k,
        split(v, given.kv_heads),
        is_causal=given.is_causal,
        enable_gqa=given.kv_heads != given.heads,
    )
    joined = states.transpose(-3, -2).flatten(-2)
    return projected(joined, weights[3], loras[3], given.scale, residual=input)


def _attention_reference(
    input: Tensor,
    norm_weight: Tensor,
    weights: list[Tensor],
    loras: list[Tensor],
    beside: list[bool],
    cos: Tensor | None,
    sin: Tensor | None,
    heads: int,
    kv_heads: int,
    scale: float = 1.0,
    eps: float | None = None,
    base: float = 10000.0,
    is_causal: bool = True,
) -> Tensor:
    pairs = _pairs(loras, beside)
    normed = F.rms_norm(input, input.shape[-1:], norm_weight, eps)
    wide = weights[0].shape[0] // heads
    # No GPU of Apple's has float64.
    places = torch.arange(input.shape[-2], device="cpu", dtype=torch.float64)
    angles = places[:, None] * base ** -(torch.arange(wide // 2, device="cpu") * 2 / wide)
    cosines, sines = (angles.cos(), angles.sin()) if cos is None or sin is None else (cos, sin)

    def heads_of(weight: Tensor, pair: Pair | None, count: int) -> Tensor:
        states = _thin(normed, weight, pair, scale)
        split = states.view(*states.shape[:-1], count, wide).transpose(-3, -2)
        return split.repeat_interleave(heads // count, -3)

    def turned(x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        c, s = cosines[: x.shape[-2]].to(x), sines[: x.shape[-2]].to(x)
        return torch.cat([first * c - second * s, second * c + first * s], -1)

    q = turned(heads_of(weights[0], pairs[0], heads))
    k = turned(heads_of(weights[1], pairs[1], kv_heads))
    v = heads_of(weights[2], pairs[2], kv_heads)
    with sdpa_kernel(SDPBackend.MATH):  # which has derivatives of every kind
        states = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    return input + _thin(states.transpose(-3, -2).flatten(-2), weights[3], pairs[3], scale)


def _attention_case(
    batch: int, length: int, width: int, heads: int, kv_heads: int, rank: int
) -> Case:
    shared = width // heads * kv_heads
    shapes = [(width, width), (shared, width), (shared, width), (width, width)]
    beside = (True, False, True, True)

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        draw = _drawing(dtype, device, generator)
        weights = [draw(*shape) for shape in shapes]
        loras = _loras(draw, shapes, rank, beside)
        args = [draw(batch, length, width), draw(width) + 1, weights, loras, [*beside], None, None]
        return [*args, heads, kv_heads, 0.5, 1e-6], {}

    return Case(f"{batch}x{length}x{width} {heads} heads of {kv_heads} rank {rank}", make)


def _attention_cost(
    input: Tensor,
    norm_weight: Tensor,
    weights: list[Tensor],
    loras: list[Tensor],
    *_: Any,
    **__: Any,
) -> Cost:
    rows, read = math.prod(input.shape[:-1]), [*weights, *loras]
    products = 2 * rows * sum(weight.numel() for weight in read)
    return Cost(
        read=2 * input.nbytes + norm_weight.nbytes + sum(weight.nbytes for weight in read),
        write=input.nbytes,
        flops=products + 2 * input.numel() * input.shape[-2],  # of attention, where it is causal
    )


@operator(
    source=SOURCE,
    reference=_attention_reference,
    cases=[
        _attention_case(0, 5, 8, 2, 1, 2),
        _attention_case(2, 17, 32, 4, 2, 8),
        _attention_case(1, 33, 32, 2, 2, 4),
    ],
    bench=[_attention_case(1, 256, 256, 4, 2, 8)],
    cost=_attention_cost,
    made_of_others=True,
)
def _lora_attention(
    input: Tensor,
    norm_weight: Tensor,
    weights: list[Tensor],
    loras: list[Tensor],
    beside: list[bool],
    cos: Tensor | None,
    sin: Tensor | None,
    heads: int,
    kv_heads: int,
    scale: float = 1.0,
    eps: float | None = None,
    base: float = 10000.0,
    is_causal: bool = True,
) -> Tensor:
    """`beside`: which of the four weights have a pair; `loras`: the pairs, one after the other."""
    _check("lora_attention", input, weights)
    given = _Heads(heads, kv_heads, scale, eps, base, is_causal)
    return _attended(input, norm_weight, weights, _pairs(loras, beside), cos, sin, given)


_ATTENTION = ("input", "norm_weight", "weights", "loras", "cos", "sin")


@_lora_attention.backward(keep=_ATTENTION)
def _(call: Call, grad: Tensor) -> Gradients:
    def block(values: Mapping[str, Any]) -> Tensor:
        input, norm_weight, weights, loras, cos, sin = (values[name] for name in _ATTENTION)
        pairs = _pairs(loras, call.beside)
        return _attended(input, norm_weight, weights, pairs, cos, sin, _Heads.of(call))

    return _computed_again(call, _ATTENTION, block, grad)


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
    given = _Heads(heads, kv_heads or heads, scale, eps, base, is_causal)
    check_input("lora_attention", input)
    rows = q_weight.shape[0]
    if rows % heads or heads % given.kv_heads:
        raise ValueError(
            f"lora_attention: arguments 'heads' and 'kv_heads' expect heads that divide the {rows}"
            f" rows of 'q_weight', and kv_heads that divide heads, got {heads} and"
            f" {given.kv_heads}"
        )
    weights, loras = (q_weight, k_weight, v_weight, o_weight), (q_lora, k_lora, v_lora, o_lora)
    if recompute and _is_plain(input, weights):
        return _lora_attention(
            input, norm_weight, _tensors(weights), *_flat(loras), cos, sin, *astuple(given)
        )

    def block(x: Tensor) -> Tensor:
        return _attended(x, norm_weight, weights, loras, cos, sin, given)

    return _kept_or_not(block, input, recompute)


# --- what both do ---------------------------------------------------------------------------------


def _check(name: str, input: Tensor, weights: Sequence[Tensor]) -> None:
    """Matrices of the input's dtype; the operators that they go to look at their sizes."""
    check_input(name, input)
    for i, weight in enumerate(weights):
        check_like(name, f"weights[{i}]", weight, "input", input)
        if weight.dim() != 2:
            raise ValueError(
                f"{name}: argument 'weights[{i}]' expects two dimensions, got {list(weight.shape)}"
            )


def _is_plain(input: Tensor, weights: Sequence[Weight]) -> bool:
    """Whether an operator takes the call; autocast is for the operators that blocks are made of."""
    quantised = any(isinstance(weight, Quantized) for weight in weights)
    return not quantised and not torch.is_autocast_enabled(input.device.type)


def _tensors(weights: Sequence[Weight]) -> list[Tensor]:
    return [weight for weight in weights if isinstance(weight, Tensor)]


def _flat(loras: Sequence[Pair | None]) -> tuple[list[Tensor], list[bool]]:
    """The pairs that are there one after the other, and which they are."""
    given = [tensor for pair in loras if pair is not None for tensor in pair]
    return given, [pair is not None for pair in loras]


def _pairs(loras: Sequence[Tensor], beside: Sequence[bool]) -> list[Pair | None]:
    rest = iter(loras)
    return [(next(rest), next(rest)) if there else None for there in beside]


def _computed_again(
    call: Call, names: Sequence[str], block: Callable[[Mapping[str, Any]], Tensor], grad: Tensor
) -> Gradients:
    """Gradients of those arguments `names` that need one, by way of `block` computed once more."""
    twice = torch.is_grad_enabled()
    values = {name: getattr(call, name) for name in names}
    needed = [name for name in names if call.needs(name)]
    with torch.enable_grad():
        if not twice:
            values = {name: _fresh(value, name in needed) for name, value in values.items()}
        result = block(values)
        wanted = [t for t in tensors_of(values[name] for name in needed) if t.requires_grad]
        found = iter(torch.autograd.grad(result, wanted, grad, create_graph=twice))
    gradients: dict[str, Any] = {}
    for name in needed:
        value = values[name]
        if isinstance(value, Tensor):
            gradients[name] = next(found)
        else:
            gradients[name] = [next(found) if t.requires_grad else None for t in value]
    return gradients


def _fresh(value: Any, needed: bool) -> Any:
    """A tensor, or those of a list, apart from the graph they are of."""
    if isinstance(value, Tensor):
        return value.detach().requires_grad_(needed)
    if isinstance(value, list | tuple):
        return [t.detach().requires_grad_(needed and t.requires_grad) for t in value]
    return value


def _kept_or_not(layer: Callable[[Tensor], Tensor], input: Tensor, recompute: bool) -> Tensor:
    if not recompute:
        return layer(input)
    result: Tensor = checkpoint(layer, input, use_reentrant=False, preserve_rng_state=False)
    return result


def _thin(input: Tensor, weight: Tensor, pair: Pair | None, scale: float) -> Tensor:
    """What `projected` gives, by torch's operators."""
    plain = F.linear(input, weight)
    return plain if pair is None else plain + scale * F.linear(F.linear(input, pair[0]), pair[1])


Drawn = Callable[..., Tensor]


def _drawing(dtype: torch.dtype, device: torch.device, generator: torch.Generator) -> Drawn:
    def draw(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=generator) / math.sqrt(max(shape[-1], 1))
        return values.to(dtype).to(device)

    return draw


def _loras(
    draw: Drawn, shapes: Sequence[tuple[int, int]], rank: int, beside: Sequence[bool]
) -> list[Tensor]:
    chosen = [shape for shape, there in zip(shapes, beside, strict=True) if there]
    return [t for out, width in chosen for t in (draw(rank, width), draw(out, rank))]
