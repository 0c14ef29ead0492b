"""kl_div: the Kullback-Leibler divergence of log-probabilities from a target."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from anymetal.ops.declare import Arguments, Case, Cost, on_call, operator, variants
from anymetal.ops.declare.checks import check_input, check_pair
from anymetal.ops.declare.elementwise import choice_for
from anymetal.ops.losses.targets import check_reduction, legacy, wide

SOURCE = "kl_div.metal"
REDUCTIONS = ("mean", "batchmean", "sum", "none")
Tensor = torch.Tensor
# Threadgroups that share the elements of a sum.
_GROUPS = 256


def _reference(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """torch's, rounded once; its mean warns of batchmean."""
    losses = F.kl_div(wide(input), wide(target), reduction="none", log_target=log_target)
    total = losses if reduction == "none" else losses.sum()
    return (total / _share(input, reduction)).to(input.dtype)


@on_call
def _timed(call: Arguments) -> Tensor:
    """torch's own, rounded at every step."""
    return F.kl_div(call.input, call.target, reduction=call.reduction, log_target=call.log_target)


def _share(input: Tensor, reduction: str) -> float:
    """What a sum is divided by."""
    if reduction == "batchmean":
        return float(input.shape[0]) if input.dim() else 1.0
    return float(input.numel()) if reduction == "mean" else 1.0


def _case(shape: tuple[int, ...], **named: Any) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        x, y = (torch.randn(shape, generator=generator).log_softmax(-1) for _ in range(2))
        target = y if named.get("log_target") else y.exp()
        return [x.to(dtype).to(device), target.to(dtype).to(device)], dict(named)

    words = ["x".join(map(str, shape)), *(f"{n}={v}" for n, v in named.items())]
    return Case(" ".join(words), make)


@operator(
    source=SOURCE,
    reference=_reference,
    timed=_timed,
    cases=[
        _case((0, 3), reduction="sum"),
        _case((7, 33), reduction="none"),
        _case((3, 2000), reduction="batchmean", log_target=True),
    ],
    bench=[_case((256, 8192), reduction="batchmean")],
    cost=lambda input, target, **_: Cost(read=input.nbytes + target.nbytes, write=4),
    again=True,
)
def _kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    check_pair("kl_div", "input", input, "target", target)
    check_reduction("kl_div", reduction, REDUCTIONS)
    return input.new_empty(input.shape if reduction == "none" else [])


@_kl_div.run
def _(
    output: Tensor,
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    log_target: bool = False,
) -> None:
    summed = reduction != "none"
    size = choice_for(_kl_div, input, "looped", "long_rows").group_size
    groups = min(_GROUPS, max(1, -(-input.numel() // size)))
    sums = torch.zeros(groups, device=input.device)
    if input.numel():
        variants.record("kl_div", input.dtype, "looped", 1)
        numbers = _numbers(input, log_target, is_summed=summed)
        losses = input.new_empty(1) if summed else output
        _kl_div.kernel("kl_div", input)(
            input.contiguous(), target.contiguous(), losses, sums, numbers,
            threads=groups * size, group_size=size,
        )  # fmt: skip
    if summed:
        output.copy_(sums.sum() / _share(input, reduction))


def _numbers(input: Tensor, log_target: bool, **named: Any) -> dict[str, Any]:
    given = {"elements": input.numel(), "log_target": log_target}
    return {**given, "is_summed": False, "scale_step": 0, **named}


@_kl_div.gradient(
    of=["input", "target"],
    cost=lambda grad, input, target, *_, **__: Cost(
        read=input.nbytes + target.nbytes, write=input.nbytes + target.nbytes
    ),
)
def kl_div_backward(
    grad: Tensor, input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> tuple[Tensor, Tensor]:
    """The gradients of the log-probabilities and of the target."""
    check_input("kl_div_backward", grad, "grad")
    check_pair("kl_div_backward", "input", input, "target", target)
    return input.new_empty(input.shape), input.new_empty(input.shape)


@kl_div_backward.run
def _(
    results: tuple[Tensor, Tensor],
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    log_target: bool = False,
) -> None:
    if input.numel() == 0:
        return
    each = reduction == "none"
    scale = (grad.float() / _share(input, reduction)).reshape(-1).contiguous()
    variants.record("kl_div_backward", input.dtype, "elementwise", 1)
    kl_div_backward.kernel("kl_div_backward", input)(
        scale, input.contiguous(), target.contiguous(), *results,
        _numbers(input, log_target, scale_step=int(each)), threads=input.numel(),
        group_size=choice_for(kl_div_backward, input, "elementwise").group_size,
    )  # fmt: skip


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """The divergence of log-probabilities `input` from `target`, as F.kl_div.

    `reduction` is "mean", "batchmean", "sum" or "none"; with `log_target` the target is given as
    logarithms too. Shapes must be the same.
    """
    return _kl_div(input, target, legacy(reduction, size_average, reduce), log_target)
