"""clip_gradients_: gradients scaled down where the norm of all of them is too large."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from anymetal.ops.declare import Case, Cost, operator, variants
from anymetal.ops.declare.checks import FLOATS, check_dtype, check_size, check_writable
from anymetal.ops.declare.elementwise import choice_for
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.optimizers.cases import float32_or_more
from anymetal.ops.optimizers.tables import Launches, Written, bindable, check_device

Tensor = torch.Tensor
NAME = "clip_gradients_"
GRADIENTS = 28  # tensors of a launch, as clip.metal has it
_KINDS = {math.inf: 0, 1.0: 1, 2.0: 2}
_POWERS = 3


def _reference(grads: list[Tensor], norm: Tensor, max_norm: float, norm_type: float = 2.0) -> None:
    values = [float32_or_more(grad).flatten() for grad in grads]
    total = torch.linalg.vector_norm(torch.cat(values), norm_type) if grads else norm * 0
    if norm.dtype == torch.float64 or grads:
        norm.copy_(total.view(norm.shape))
    for grad, value in zip(grads, values, strict=True):
        scaled = value * (max_norm / (total + 1e-6)).clamp(max=1.0)
        grad.copy_(scaled.view(grad.shape))


def _timed(grads: list[Tensor], norm: Tensor, max_norm: float, norm_type: float = 2.0) -> None:
    """What torch.nn.utils.clip_grad_norm_ does to gradients."""
    total = torch.nn.utils.get_total_norm(grads, norm_type)
    norm.copy_(total)
    torch._foreach_mul_(grads, (max_norm / (total + 1e-6)).clamp(max=1.0))


def _case(shapes: Sequence[tuple[int, ...]], max_norm: float, norm_type: float = 2.0) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        grads = [torch.randn(shape, generator=generator) for shape in shapes]
        norm = torch.zeros(1, device=device)
        return [[grad.to(dtype).to(device) for grad in grads], norm, max_norm, norm_type], {}

    sizes = "x".join(str(n) for n in shapes[0]) or "scalar"
    return Case(f"{len(shapes)} of {sizes} order {norm_type} to {max_norm}", make)


def _cost(grads: list[Tensor], *_: Any, **__: Any) -> Cost:
    size = sum(grad.nbytes for grad in grads)
    return Cost(read=2 * size, write=size, flops=3 * sum(grad.numel() for grad in grads))


@operator(
    source="clip.metal",
    reference=_reference,
    timed=_timed,
    cases=[
        _case([(5,), (0, 3), (), (33, 7)], 1.0),
        _case([(31,)], 100.0),
        _case([(3, 43), (1,)], 0.5, 1.0),
        _case([(2, 5, 13)], 0.5, math.inf),
        _case([(40,), (17,)], 0.5, 3.0),
        _case([(257,)] * 30, 2.0),
    ],
    bench=[_case([(1 << 16,)] * 2, 1.0), _case([(1 << 20,)] * 4, 1.0)],
    cost=_cost,
    mutates=["grads", "norm"],
    no_gradient="gradients are clipped outside of autograd. Call it under torch.no_grad()",
)
def clip_gradients_(
    grads: list[Tensor], norm: Tensor, max_norm: float, norm_type: float = 2.0
) -> None:
    """Scales gradients so that the norm of all of them is at most `max_norm`.

    The norm before is written into `norm`, one float32 element. With an infinite `max_norm` nothing
    is scaled.
    """
    for i, grad in enumerate(grads):
        name = f"grads[{i}]"
        check_dtype(NAME, name, grad, FLOATS)
        check_size(NAME, name, grad)
        check_writable(NAME, name, grad)
        check_device(NAME, name, grad, grads[0])
    check_dtype(NAME, "norm", norm, [torch.float32])
    if norm.numel() != 1:
        raise ValueError(
            f"{NAME}: argument 'norm' expects one element, got shape {list(norm.shape)}"
        )
    if grads:
        check_device(NAME, "norm", norm, grads[0])
    if not norm_type > 0:
        raise ValueError(f"{NAME}: argument 'norm_type' expects a positive order, got {norm_type}")


@clip_gradients_.run
def _(grads: list[Tensor], norm: Tensor, max_norm: float, norm_type: float = 2.0) -> None:
    written = Written()
    found = [bindable(written.dense(grad)) for grad in grads if grad.numel()]
    if not found:
        norm.zero_()
        return
    choice = choice_for(clip_gradients_, found[0], "tables")
    variants.record(NAME, found[0].dtype, "tables", 1)
    launches = Launches(choice.values["chunk"], choice.group_size, GRADIENTS)
    tables = list(_tables(found))
    shapes = [launches.shape([grad.numel() for grad in table]) for table in tables]
    groups = [min(shape["starts"][-1], choice.values["groups"]) for shape in shapes]
    partials = torch.empty(sum(groups), dtype=torch.float32, device=norm.device)
    numbers = {
        "kind": _KINDS.get(norm_type, _POWERS),
        "order": norm_type,
        "max_norm": max_norm,
        "count": len(partials),
    }
    steps = [
        {**numbers, "table": shape, "groups": count, "writes": int(i == 0)}
        for i, (shape, count) in enumerate(zip(shapes, groups, strict=True))
    ]
    size = launches.group_size
    for table, step, results in zip(tables, steps, torch.split(partials, groups), strict=True):
        shape = {"threads": step["groups"] * size, "group_size": size}
        _kernel("reduce_gradients", table)(*_filled(table), results, step, **shape)
    for table, step in zip(tables, steps, strict=True):
        buffers = (*_filled(table), partials, bindable(norm))
        _kernel("clip_gradients", table)(*buffers, step, **launches.threads(step["table"]))
    written.finish()


def _tables(grads: Sequence[Tensor]) -> Iterator[Sequence[Tensor]]:
    """Gradients of one dtype each."""
    for dtype in FLOATS:
        same = [grad for grad in grads if grad.dtype == dtype]
        for i in range(0, len(same), GRADIENTS):
            yield same[i : i + GRADIENTS]


def _filled(table: Sequence[Tensor]) -> list[Tensor]:
    """A place that no gradient takes is given the first."""
    return [*table, *[table[0]] * (GRADIENTS - len(table))]


def _kernel(name: str, table: Sequence[Tensor]) -> Callable[..., None]:
    kernels = clip_gradients_.kernels
    return kernels.kernel(f"{name}_{SUFFIXES[table[0].dtype]}", table[0].device)
