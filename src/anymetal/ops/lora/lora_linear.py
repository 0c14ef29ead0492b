"""lora_linear: a linear layer and a product of two thin matrices beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.ops.declare import Autocast, Call, Case, Cost, Gradients, operator
from anymetal.ops.declare.checks import check_input, check_like, check_shape, check_size
from anymetal.ops.matmul import linear, matmul
from anymetal.ops.matmul.product import Epilogue, launch
from anymetal.ops.quantised.linear import quantized_linear
from anymetal.ops.quantised.packed import PackedWeight, packed_linear
from anymetal.ops.quantised.quantize import Quantized

SOURCE = "../matmul/matmul.metal"
Tensor = torch.Tensor
Optional = torch.Tensor | None


def _reference(
    input: Tensor, weight: Tensor, a: Tensor, b: Tensor, bias: Optional = None, scale: float = 1.0
) -> Tensor:
    low: Tensor = F.linear(F.linear(input, a), b)
    return torch.add(F.linear(input, weight, bias), low, alpha=scale)


def _case(rows: Sequence[int], k: int, n: int, rank: int, *, bias: bool, scale: float) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        def random(*shape: int, over: int = 1) -> Tensor:
            values = torch.randn(shape, generator=generator) / math.sqrt(max(over, 1))
            return values.to(dtype).to(device)

        args: list[Any] = [random(*rows, k), random(n, k, over=k), random(rank, k, over=k)]
        return [*args, random(n, rank, over=rank), random(n) if bias else None, scale], {}

    shape = "x".join(map(str, (*rows, k)))
    return Case(f"{shape} {n}x{k} rank {rank}{' bias' if bias else ''} scale={scale}", make)


def _cost(input: Tensor, weight: Tensor, a: Tensor, b: Tensor, *_: Any, **__: Any) -> Cost:
    rows = math.prod(input.shape[:-1])
    return Cost(
        read=input.nbytes + weight.nbytes + a.nbytes + b.nbytes,
        write=rows * weight.shape[0] * input.element_size(),
        flops=2 * rows * (weight.numel() + a.numel() + b.numel()),
    )


def _check(
    name: str, input: Tensor, shape: Sequence[int], a: Tensor, b: Tensor, bias: Optional
) -> None:
    """Everything but the weight, whose shape is [out, in]."""
    for argument, tensor in (("a", a), ("b", b)):
        check_like(name, argument, tensor, "input", input)
        if tensor.dim() != 2:
            raise ValueError(
                f"{name}: argument '{argument}' expects two dimensions, got {list(tensor.shape)}"
            )
    out, columns = shape
    check_shape(name, "a", a, [a.shape[0], columns], "rank and the last size of 'weight'")
    check_shape(name, "b", b, [out, a.shape[0]], "the first size of 'weight', and that of 'a'")
    if bias is not None:
        check_like(name, "bias", bias, "input", input)
        check_shape(name, "bias", bias, [out], "the first size of 'weight'")


@operator(
    source=SOURCE,
    reference=_reference,
    cases=[
        _case((0,), 4, 3, 2, bias=True, scale=1.0),
        _case((2, 19), 40, 31, 4, bias=True, scale=0.5),
        _case((40,), 36, 12, 8, bias=False, scale=2.0),
    ],
    bench=[_case((512,), 512, 512, 8, bias=False, scale=2.0)],
    cost=_cost,
    autocast=Autocast("lower", like="linear"),
)
def _lora_linear(
    input: Tensor,
    weight: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    name = "lora_linear"
    check_input(name, input)
    check_like(name, "weight", weight, "input", input)
    check_size(name, "weight", weight)
    if input.dim() == 0 or weight.dim() != 2 or weight.shape[1] != input.shape[-1]:
        raise ValueError(
            f"{name}: argument 'weight' expects shape [out, in] and 'input' [..., in], got"
            f" {list(weight.shape)} and {list(input.shape)}"
        )
    _check(name, input, weight.shape, a, b, bias)
    return input.new_empty([*input.shape[:-1], weight.shape[0]])


@_lora_linear.run
def _(
    output: Tensor,
    input: Tensor,
    weight: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Optional = None,
    scale: float = 1.0,
) -> None:
    rows = input.reshape(math.prod(input.shape[:-1]), input.shape[-1])
    hidden, plain = rows.new_empty(len(rows), len(a)), rows.new_empty(len(rows), len(weight))
    launch("linear", rows, a.mT, hidden, Epilogue())
    launch("linear", rows, weight.mT, plain, Epilogue(bias))
    result = output.view(plain.shape)
    launch("linear", hidden, b.mT, result, Epilogue(residual=plain, alpha=scale))


@_lora_linear.backward(keep=["input", "weight", "a", "b"])
def _(call: Call, grad: Tensor) -> Gradients:
    input, a, b = call.input, call.a, call.b
    count = math.prod(input.shape[:-1])
    rows, grads = input.reshape(count, input.shape[-1]), grad.reshape(count, grad.shape[-1])
    found: dict[str, Tensor] = {}
    thin = matmul(grads, b) * call.scale
    if call.needs("input"):
        plain = matmul(grads, call.weight)
        found["input"] = linear(thin, a.mT, residual=plain).view(input.shape)
    if call.needs("a"):
        found["a"] = matmul(thin.mT, rows)
    if call.needs("b"):
        found["b"] = matmul(grads.mT, linear(rows, a)) * call.scale
    if call.needs("weight"):
        found["weight"] = matmul(grads.mT, rows)
    if call.needs("bias"):
        found["bias"] = grads.sum(0)
    return found


def lora_linear(
    input: Tensor,
    weight: Tensor | Quantized | PackedWeight,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    """input @ weight.T + bias + scale * (input @ a.T) @ b.T.

    `weight` is [out, in], `a` [rank, in] and `b` [out, rank]. A quantised weight has no gradient,
    all others have; the thin product is computed again for it.
    """
    if isinstance(weight, Tensor):
        return _lora_linear(input, weight, a, b, bias, scale)
    check_input("lora_linear", input)
    _check("lora_linear", input, weight.shape, a, b, bias)
    if isinstance(weight, Quantized):
        plain = quantized_linear(input, weight, bias)
    else:
        plain = packed_linear(input, weight, bias)
    return linear(scale * linear(input, a), b, residual=plain)
