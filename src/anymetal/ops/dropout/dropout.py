"""dropout, and dropout added to a residual: the mask is made of a seed, and never in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anymetal.ops.declare import AnyOperator, Call, Case, Cost, Gradients, operator, variants
from anymetal.ops.declare.checks import check_dtype, check_input, check_pair
from anymetal.ops.declare.elementwise import choice_for
from anymetal.ops.losses.targets import check_fraction, words_of

SOURCE = "dropout.metal"
Tensor = torch.Tensor
_WORDS = 1 << 32
_ALL = _WORDS - 1
# Philox 4x32-10: what counters are multiplied with, and what is added to keys each round.
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(counters: Tensor, seed: int) -> Tensor:
    """The four words of each counter of 32 bits, by torch's operators."""
    x = [counters, *(torch.zeros_like(counters) for _ in range(3))]
    keys = [seed & _ALL, (seed >> 32) & _ALL]
    for _ in range(_ROUNDS):
        products = [_product(x[0], _FACTORS[0]), _product(x[2], _FACTORS[1])]
        (high0, low0), (high1, low1) = products
        x = [high1 ^ x[1] ^ keys[0], low1, high0 ^ x[3] ^ keys[1], low0]
        keys = [(key + step) & _ALL for key, step in zip(keys, _STEPS, strict=True)]
    return torch.stack(x, -1)


def _product(words: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """The high and the low half of a product of 64 bits, which int64 has no place for."""
    low, high = (words & 0xFFFF) * factor, (words >> 16) * factor
    total = high + (low >> 16)
    return total >> 16, ((total & 0xFFFF) << 16) | (low & 0xFFFF)


def _threshold(p: float) -> int:
    """Words below it drop their element; all ones stand for every word."""
    return _ALL if p == 1.0 else min(round(p * _WORDS), _ALL - 1)


def mask_of(elements: int, p: float, seed: int) -> Tensor:
    """Which elements are kept, by torch's operators."""
    counters = torch.arange(-(-elements // 4))
    words = philox(counters, seed).view(-1)[:elements]
    return (words >= _threshold(p)) & torch.tensor(p != 1.0)


def _reference(input: Tensor, seed: Tensor, p: float) -> Tensor:
    mask = mask_of(input.numel(), p, int(seed)).view(input.shape).to(input.device)
    return torch.where(mask, input * _scale(p), 0.0).to(input.dtype)


def _scale(p: float) -> float:
    return 0.0 if p == 1.0 else 1.0 / (1.0 - p)


def _case(shape: Sequence[int], p: float, tensors: int = 1) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        values = [torch.randn(tuple(shape), generator=generator) for _ in range(tensors)]
        seed = torch.randint(0, 2**62, (1,), generator=generator)
        return [*(value.to(dtype).to(device) for value in values), seed.to(device), p], {}

    return Case(f"{'x'.join(map(str, shape)) or 'scalar'} p={p}", make)


def _check_seed(name: str, seed: Tensor, p: float) -> None:
    check_dtype(name, "seed", seed, [torch.int64])
    if seed.numel() != 1:
        raise ValueError(
            f"{name}: argument 'seed' expects one number, got shape {list(seed.shape)}"
        )
    check_fraction(name, "p", p)


def _launch(
    operator: AnyOperator,
    output: Tensor,
    input: Tensor,
    residual: Tensor | None,
    seed: Tensor,
    p: float,
) -> None:
    if input.numel() == 0:
        return
    numbers = {
        "elements": input.numel(),
        "dropped_below": _threshold(p),
        "has_residual": residual is not None,
        "scale": _scale(p),
    }
    dense = input.contiguous()
    variants.record(operator.name, input.dtype, "elementwise", 1)
    operator.kernel("dropout", input)(
        dense,
        dense if residual is None else residual.contiguous(),
        words_of(seed),
        output,
        numbers,
        threads=-(-input.numel() // 4),
        group_size=choice_for(operator, input, "elementwise").group_size,
    )


@operator(
    source=SOURCE,
    reference=_reference,
    cases=[_case((0, 3), 0.5), _case((), 0.5), _case((2, 3, 33), 0.1), _case((7, 32), 1.0)],
    bench=[_case((1 << 21,), 0.1)],
    cost=lambda input, seed, p: Cost(read=input.nbytes, write=input.nbytes),
)
def _dropout(input: Tensor, seed: Tensor, p: float) -> Tensor:
    check_input("dropout", input)
    _check_seed("dropout", seed, p)
    return input.new_empty(input.shape)


@_dropout.run
def _(output: Tensor, input: Tensor, seed: Tensor, p: float) -> None:
    _launch(_dropout, output, input, None, seed, p)


@_dropout.backward(keep=["seed"])
def _(call: Call, grad: Tensor) -> Gradients:
    return {"input": _dropout(grad, call.seed, call.p)}


@operator(
    source=SOURCE,
    reference=lambda input, residual, seed, p: _reference(input, seed, p) + residual,
    cases=[_case((0, 3), 0.5, 2), _case((2, 3, 33), 0.1, 2)],
    bench=[_case((1 << 21,), 0.1, 2)],
    cost=lambda input, residual, seed, p: Cost(read=2 * input.nbytes, write=input.nbytes),
)
def _dropout_add(input: Tensor, residual: Tensor, seed: Tensor, p: float) -> Tensor:
    check_pair("dropout_add", "input", input, "residual", residual)
    _check_seed("dropout_add", seed, p)
    return input.new_empty(input.shape)


@_dropout_add.run
def _(output: Tensor, input: Tensor, residual: Tensor, seed: Tensor, p: float) -> None:
    _launch(_dropout_add, output, input, residual, seed, p)


@_dropout_add.backward(keep=["seed"])
def _(call: Call, grad: Tensor) -> Gradients:
    found = {"residual": grad} if call.needs("residual") else {}
    if call.needs("input"):
        found["input"] = _dropout(grad, call.seed, call.p)
    return found


def _seed(seed: int | Tensor | None, device: torch.device) -> Tensor:
    """A number given, or the next of torch's generator."""
    if seed is None:
        return torch.randint(0, 2**62, (1,), device=device)
    if isinstance(seed, Tensor):
        return seed
    return torch.full((1,), seed, dtype=torch.int64, device=device)


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, seed: int | Tensor | None = None
) -> Tensor:
    """`input` with elements zeroed with probability `p`, others over 1 - p, as F.dropout.

    One seed gives one mask, on every device; without one it comes from torch's generator. The
    gradient makes the mask again: none is stored.
    """
    check_fraction("dropout", "p", p)
    if not training or p == 0.0:
        return input
    return _dropout(input, _seed(seed, input.device), p)


def dropout_add(
    input: Tensor,
    residual: Tensor,
    p: float = 0.5,
    training: bool = True,
    seed: int | Tensor | None = None,
) -> Tensor:
    """dropout(input) + residual in one pass, rounded once."""
    check_fraction("dropout_add", "p", p)
    if not training or p == 0.0:
        return input + residual
    return _dropout_add(input, residual, _seed(seed, input.device), p)
