"""An operator that exists for tests alone: it is declared here and taken off the list again."""

from __future__ import annotations

import torch

from anymetal.ops.declare import OPERATORS, AnyOperator, Cost, operator, variants
from anymetal.ops.declare.cases import random_case
from anymetal.policy.policy import choose

Tensor = torch.Tensor


class Mistakes:
    """What the operator does wrong now; tests set these."""

    added = 0.0
    only_group_size: int | None = None
    out_of_bounds = False
    raises: str | None = None


@operator(
    name="sample_square",
    source="sample.metal",
    reference=lambda x: x * x,
    cases=[random_case((size,)) for size in (0, 1, 33, 1031)],
    baseline=torch.square,
    cost=lambda x: Cost(read=x.nbytes, write=x.nbytes),
    naive=lambda x: x**2,
    bench=[random_case((2048,)), random_case((8192,))],
)
def square(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@square.run
def _(y: Tensor, x: Tensor) -> None:
    choice = choose("sample_square", "fp32", "any", "cpu", "elementwise")
    right = Mistakes.only_group_size in (None, choice.group_size)
    _launch(square, [x.contiguous(), y], Mistakes.added if right else 1.0)


@square.gradient(
    name="sample_square_backward",
    cost=lambda grad, x: Cost(read=grad.nbytes + x.nbytes, write=x.nbytes),
    cases=[random_case((size,), (size,)) for size in (0, 33)],
)
def square_backward(grad: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(x)


@square_backward.run
def _(dx: Tensor, grad: Tensor, x: Tensor) -> None:
    _launch(square_backward, [grad.contiguous(), x.contiguous(), dx])


for declared in (square, square_backward):
    del OPERATORS[declared.name]


def _launch(operator: AnyOperator, tensors: list[Tensor], *numbers: float) -> None:
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
        *tensors,
        count + past,
        *map(float, numbers),
        threads=count + past,
        group_size=choice.group_size,
    )
