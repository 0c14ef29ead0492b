"""An operator that exists for tests alone: it is declared here and taken off the list again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from anymetal.ops.declare import variants
from anymetal.ops.declare.cases import random_case
from anymetal.ops.declare.declare import OPERATORS, Cost, Operator
from anymetal.policy.policy import choose

SOURCE = str(Path(__file__).parent / "sample.metal")


class Mistakes:
    """What the operator does wrong now; tests set these."""

    added = 0.0
    only_group_size: int | None = None
    out_of_bounds = False
    raises: str | None = None


square = Operator(
    "sample_square(Tensor x) -> Tensor",
    SOURCE,
    lambda x: x * x,
    cases=[random_case((size,)) for size in (0, 1, 33, 1031)],
    baseline=torch.square,
    cost=lambda x: Cost(read=x.nbytes, write=x.nbytes),
    naive=lambda x: x**2,
    bench=[random_case((2048,)), random_case((8192,))],
)
square_backward = Operator(
    "sample_square_backward(Tensor dy, Tensor x) -> Tensor",
    SOURCE,
    lambda dy, x: 2 * dy * x,
    cases=[random_case((size,), (size,)) for size in (0, 33)],
    cost=lambda dy, x: Cost(read=dy.nbytes + x.nbytes, write=x.nbytes),
    differentiable=False,
)
for operator in (square, square_backward):
    del OPERATORS[operator.name]


def _launch(operator: Operator, tensors: list[torch.Tensor], *numbers: float) -> None:
    first, count = tensors[0], tensors[0].numel()
    choice = choose(
        operator=operator.name,
        dtype=variants.DTYPE_NAMES[first.dtype],
        shape_class="any",
        device=first.device.type,
        strategy="elementwise",
    )
    variants.record(operator.name, first.dtype, "elementwise", 1)
    if Mistakes.raises is not None:
        raise RuntimeError(Mistakes.raises)
    if not count:
        return
    past = 1 if Mistakes.out_of_bounds else 0
    operator.kernel(operator.name, first)(
        *tensors, count + past, *numbers, threads=count + past, group_size=choice.group_size
    )


@square.forward
def _(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    choice = choose("sample_square", "fp32", "any", "cpu", "elementwise")
    right = Mistakes.only_group_size in (None, choice.group_size)
    _launch(square, [x, y], Mistakes.added if right else 1.0)
    return y


@square_backward.forward
def _(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    dx = torch.empty_like(x)
    _launch(square_backward, [dy.contiguous(), x.contiguous(), dx])
    return dx


@square.fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@square_backward.fake
def _(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[0])


square.gradient(_keep, lambda ctx, dy: square_backward(dy, ctx.saved_tensors[0]))
square_backward.without_gradient("a square is differentiated once")
