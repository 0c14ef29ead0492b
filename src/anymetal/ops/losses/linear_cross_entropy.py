"""linear_cross_entropy: a projection to classes and its loss, a part of the logits at a time.

The forward goes through rows, since the log-sum-exp of a row needs all its classes. The gradient
has that, and goes through classes: each part gives whole rows of the weight's gradient, which are
rounded once, and adds to that of the input, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.launch.error_buffer import checked_at_the_end
from anymetal.ops.declare import Arguments, Autocast, Case, Cost, on_call, operator
from anymetal.ops.declare.checks import check_input, check_like, check_shape
from anymetal.ops.losses.cross_entropy import (
    Logits,
    Numbers,
    check_classes,
    losses_of,
    reduce_into,
    scale_of,
    write_gradient,
)
from anymetal.ops.losses.cross_entropy import reference as entropy
from anymetal.ops.losses.targets import check_reduction
from anymetal.ops.matmul.product import Epilogue, launch

SOURCE = "cross_entropy.metal"
# Parts of the rows, or of the classes, whose logits are in memory at a time.
PARTS = 20
# No part is smaller, so that small calls are one part.
LEAST = 16
TILE = 64
Tensor = torch.Tensor
Optional = torch.Tensor | None


def _reference(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Optional = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    rows = F.linear(input, weight, bias).flatten(0, -2)
    options = (ignore_index, reduction, label_smoothing, z_loss, softcap)
    output, states, total = entropy(rows, target.flatten(), None, *options)
    output = output.view(target.shape) if reduction == "none" else output
    return output, states, total


@on_call
def _timed(call: Arguments) -> Any:
    """torch's own two; they have no z-loss and no softcap."""
    if call.z_loss or call.softcap:
        return _reference(**vars(call))
    logits = F.linear(call.input, call.weight, call.bias).flatten(0, -2)
    losses = F.cross_entropy(
        logits,
        call.target.flatten(),
        ignore_index=call.ignore_index,
        reduction=call.reduction,
        label_smoothing=call.label_smoothing,
    )
    return losses.view(call.target.shape) if call.reduction == "none" else losses


def _case(rows: Sequence[int], k: int, classes: int, **options: Any) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(dtype).to(device)

        target = torch.randint(0, classes, tuple(rows), generator=generator)
        target[torch.rand(tuple(rows), generator=generator) < 0.2] = -100
        args = [random(*rows, k), random(classes, k) / max(k, 1) ** 0.5, target.to(device)]
        return [*args, random(classes)], dict(options)

    words = ["x".join(map(str, (*rows, k))), f"{classes}x{k}"]
    return Case(" ".join([*words, *(f"{n}={v}" for n, v in options.items())]), make)


def _cost(input: Tensor, weight: Tensor, target: Tensor, *_: Any, **__: Any) -> Cost:
    return Cost(
        read=input.nbytes + weight.nbytes + target.nbytes,
        write=4,
        flops=2 * input.numel() * weight.shape[0],
    )


def _parts(size: int) -> Iterator[slice]:
    length = max(LEAST, -(-size // PARTS))
    if length > TILE // 2:
        length = -(-length // TILE) * TILE  # a product computes whole tiles
    yield from (slice(start, start + length) for start in range(0, size, length))


def _check(name: str, input: Tensor, weight: Tensor, target: Tensor, bias: Optional) -> None:
    check_input(name, input)
    check_like(name, "weight", weight, "input", input)
    if input.dim() == 0 or weight.dim() != 2:
        raise ValueError(
            f"{name}: argument 'weight' expects shape [classes, in] and 'input' [..., in], got"
            f" {list(weight.shape)} and {list(input.shape)}"
        )
    classes = weight.shape[0]
    check_shape(name, "weight", weight, [classes, input.shape[-1]], "the last size of 'input'")
    check_classes(name, input, target, input.shape[:-1])
    if bias is not None:
        check_like(name, "bias", bias, "input", input)
        check_shape(name, "bias", bias, [classes], "one of each class")


def _logits(operator: str, rows: Tensor, weight: Tensor, bias: Optional) -> Tensor:
    logits = rows.new_empty(rows.shape[0], weight.shape[0])
    launch(operator, rows, weight.mT, logits, Epilogue(bias))
    return logits


@operator(
    source=SOURCE,
    reference=_reference,
    timed=_timed,
    cases=[
        _case((0,), 4, 5, reduction="sum"),
        _case((3,), 20, 33, reduction="none", z_loss=1e-2),
        _case((40,), 36, 70, label_smoothing=0.1, softcap=4.0),
    ],
    bench=[_case((256,), 256, 4000)],
    results=["output", "states", "total"],
    detached=["states", "total"],
    cost=_cost,
    autocast=Autocast("lower", like="linear"),
)
def _linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    name = "linear_cross_entropy"
    _check(name, input, weight, target, bias)
    check_reduction(name, reduction)
    Numbers(ignore_index, label_smoothing, z_loss, softcap).check(name)
    output = input.new_empty(target.shape if reduction == "none" else [])
    states = input.new_empty((target.numel(), 2), dtype=torch.float32)
    return output, states, input.new_empty([], dtype=torch.float32)


@_linear_cross_entropy.run
@on_call
def _(results: tuple[Tensor, Tensor, Tensor], call: Arguments) -> None:
    output, states, total = results
    given = Numbers.of(call)
    rows, labels = call.input.reshape(-1, call.input.shape[-1]), call.target.reshape(-1)
    losses, counted = (torch.empty(len(labels), device=call.input.device) for _ in range(2))
    with checked_at_the_end():
        for part in _parts(len(labels)):
            logits = _logits("linear", rows[part], call.weight, call.bias)
            held = Logits(logits, len(logits), len(call.weight), 1, labels[part], None, given)
            losses[part], counted[part] = losses_of(_linear_cross_entropy, held, states[part])
            del logits, held  # before the next part's are made
        torch.sum(counted, 0, out=total)
        reduce_into(output, losses, total, call.reduction)


def _backward_reference(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Optional,
    states: Tensor,
    total: Tensor,
    *options: Any,
    **named: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    def loss(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return _reference(x, w, target, b, *options, **named)[0]

    zeros = weight.new_zeros(len(weight)) if bias is None else bias
    found: tuple[Tensor, Tensor, Tensor] = torch.func.vjp(loss, input, weight, zeros)[1](grad)
    return found


@_linear_cross_entropy.gradient(
    of=["input", "weight", "bias"],
    reference=_backward_reference,
    cost=lambda grad, input, weight, *_, **__: Cost(
        read=input.nbytes + weight.nbytes,
        write=input.nbytes + weight.nbytes,
        flops=6 * input.numel() * weight.shape[0],
    ),
)
def linear_cross_entropy_backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    states: Tensor,
    total: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of input, weight and bias; logits are computed again."""
    check_input("linear_cross_entropy_backward", grad, "grad")
    check_input("linear_cross_entropy_backward", input)
    return (
        input.new_empty(input.shape),
        weight.new_empty(weight.shape),
        weight.new_empty(weight.shape[:1]),
    )


@linear_cross_entropy_backward.run
@on_call
def _(results: tuple[Tensor, Tensor, Tensor], call: Arguments) -> None:
    of_input, of_weight, of_bias = results
    given = Numbers.of(call)
    rows, labels = call.input.reshape(-1, call.input.shape[-1]), call.target.reshape(-1)
    scale, kept = scale_of(call.grad, call.total, call.reduction), call.states.float().contiguous()
    sum_of_input = torch.zeros(rows.shape, device=call.input.device)
    for part in _parts(len(call.weight)):
        matrix = call.weight[part]
        logits = _logits("linear", rows, matrix, None if call.bias is None else call.bias[part])
        held = Logits(
            logits, len(rows), len(matrix), 1, labels, None, given, part.start, len(call.weight)
        )
        write_gradient(linear_cross_entropy_backward, held, scale, kept, logits)
        of_part = torch.empty_like(rows)
        launch("matmul", logits, matrix, of_part, Epilogue())
        sum_of_input += of_part
        launch("matmul", logits.mT, rows, of_weight[part], Epilogue())
        of_bias[part] = logits.sum(0, dtype=torch.float32)
        del logits, held, of_part  # before the next part's are made
    of_input.copy_(sum_of_input.view(call.input.shape))


def linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> Tensor:
    """cross_entropy(linear(input, weight, bias), target), whose logits are never there as a whole.

    `input` is [..., in], `weight` [classes, in], `target` has a class for each row; the other
    options are those of cross_entropy. A twentieth of the logits is in memory at a time, and the
    gradient computes them again.
    """
    return _linear_cross_entropy(
        input, weight, target, bias, ignore_index, reduction, label_smoothing, z_loss, softcap
    )[0]
