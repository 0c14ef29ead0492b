"""kl_div_topk: the divergence of logits from the most probable classes of a teacher."""

from __future__ import annotations

from typing import Any

import torch

from anymetal.ops.declare import Arguments, Case, Cost, on_call, operator
from anymetal.ops.declare.checks import check_input, check_like, check_shape
from anymetal.ops.indexing.places import add_into, check_index, take_into
from anymetal.ops.losses.cross_entropy import Logits, Numbers, row_states, write_gradient
from anymetal.ops.losses.kl_div import REDUCTIONS
from anymetal.ops.losses.targets import check_reduction, no_gradient_of, wide

SOURCE = "cross_entropy.metal"
Tensor = torch.Tensor


def _shares(target: Tensor, log_target: bool) -> tuple[Tensor, Tensor]:
    """The teacher's probabilities and their logarithms."""
    values = wide(target)
    return (values.exp(), values) if log_target else (values, values.log())


def _divided_by(target: Tensor, reduction: str) -> float:
    """By the number of rows: "mean" and "batchmean" are the same here."""
    rows = target.numel() // max(target.shape[-1], 1)
    return float(rows) if reduction in ("mean", "batchmean") else 1.0


def _losses(chosen: Tensor, lse: Tensor, target: Tensor, log_target: bool) -> Tensor:
    share, logarithm = _shares(target, log_target)
    each = share * (logarithm - (chosen - lse[..., None]))
    return torch.where(share == 0, 0.0, each).sum(-1)


def _reference(
    input: Tensor, target: Tensor, index: Tensor, reduction: str, log_target: bool
) -> tuple[Tensor, Tensor]:
    x = wide(input)
    lse = x.logsumexp(-1)
    losses = _losses(x.gather(-1, index.long()), lse, target.detach(), log_target)
    output = losses if reduction == "none" else losses.sum() / _divided_by(target, reduction)
    states = torch.stack([lse, _shares(target, log_target)[0].sum(-1)], -1)
    return output.to(input.dtype), states.reshape(-1, 2).detach()


def _case(rows: int, classes: int, k: int, reduction: str, log_target: bool) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        x, y = (torch.randn(rows, classes, generator=generator) for _ in range(2))
        found = y.log_softmax(-1).topk(k)
        values = found.values if log_target else found.values.exp()
        args = [(2 * x).to(dtype), values.to(dtype), found.indices]
        return [*(arg.to(device) for arg in args), reduction, log_target], {}

    return Case(f"{rows}x{classes} top {k} {reduction} log_target={log_target}", make)


@operator(
    source=SOURCE,
    reference=_reference,
    cases=[
        _case(0, 9, 2, "sum", True),
        _case(5, 33, 4, "none", False),
        _case(7, 2000, 10, "batchmean", True),
    ],
    bench=[_case(128, 32000, 20, "batchmean", True)],
    results=["output", "states"],
    detached=["states"],
    cost=lambda input, *_, **__: Cost(read=input.nbytes, write=4),
    gradient_in_part=True,  # the teacher's classes are changed after all are written
)
def _kl_div_topk(
    input: Tensor, target: Tensor, index: Tensor, reduction: str, log_target: bool
) -> tuple[Tensor, Tensor]:
    name = "kl_div_topk"
    check_input(name, input)
    check_like(name, "target", target, "input", input)
    check_index(name, "index", index, input)
    check_shape(name, "index", index, target.shape, "that of 'target'")
    check_reduction(name, reduction, REDUCTIONS)
    if input.dim() == 0 or target.shape[:-1] != input.shape[:-1] or target.dim() != input.dim():
        raise ValueError(
            f"{name}: argument 'target' expects shape [..., k] for 'input' [..., classes], got"
            f" {list(target.shape)} and {list(input.shape)}"
        )
    rows = input.shape[:-1]
    states = input.new_empty((rows.numel(), 2), dtype=torch.float32)
    return input.new_empty(rows if reduction == "none" else []), states


def _rows(input: Tensor) -> Logits:
    """Logits whose rows have a class that is not there, so that none is taken off a gradient."""
    classes = input.shape[-1]
    rows = input.contiguous().view(-1, classes) if input.numel() else input.view(0, classes)
    target = torch.full((len(rows),), classes, dtype=torch.int32, device=input.device)
    return Logits(rows, len(rows), classes, 1, target, None, Numbers())


@_kl_div_topk.run
@on_call
def _(results: tuple[Tensor, Tensor], call: Arguments) -> None:
    output, states = results
    target, log_target, reduction = call.target, call.log_target, call.reduction
    logits = _rows(call.input)
    found = row_states(_kl_div_topk, logits)
    lse = (found[:, 0] + found[:, 1].log()).view(call.input.shape[:-1])
    chosen = torch.empty_like(target, memory_format=torch.contiguous_format)
    take_into(_kl_div_topk, chosen, call.input, call.input.dim() - 1, call.index, each=True)
    losses = _losses(chosen.float(), lse, target, log_target)
    states[:, 0], states[:, 1] = lse.view(-1), _shares(target, log_target)[0].sum(-1).view(-1)
    total = losses if reduction == "none" else losses.sum() / _divided_by(target, reduction)
    output.copy_(total)


@on_call
def _backward_reference(call: Arguments) -> Tensor:
    def loss(x: Tensor) -> Tensor:
        return _reference(x, call.target, call.index, call.reduction, call.log_target)[0]

    found: Tensor = torch.func.vjp(loss, call.input)[1](call.grad)[0]
    return found


@_kl_div_topk.gradient(
    of=["input"],
    reference=_backward_reference,
    cost=lambda grad, input, *_, **__: Cost(read=input.nbytes, write=input.nbytes),
)
def kl_div_topk_backward(
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    index: Tensor,
    states: Tensor,
    reduction: str,
    log_target: bool,
) -> Tensor:
    """The gradient of the logits: their softmax, and the teacher's share at its classes."""
    check_input("kl_div_topk_backward", grad, "grad")
    check_input("kl_div_topk_backward", input)
    return input.new_empty(input.shape)


@kl_div_topk_backward.run
@on_call
def _(output: Tensor, call: Arguments) -> None:
    scale = call.grad.float() / _divided_by(call.target, call.reduction)
    logits = _rows(call.input)
    flat = scale.reshape(-1).contiguous()
    kept = call.states.float().contiguous()
    write_gradient(kl_div_topk_backward, logits, flat, kept, output)
    each = scale[..., None] if call.reduction == "none" else scale
    taken = (_shares(call.target, call.log_target)[0] * each).to(output.dtype)
    last = call.input.dim() - 1
    add_into(kl_div_topk_backward, output, last, call.index, taken, each=True, alpha=-1.0)


def kl_div_topk(
    input: Tensor,
    target: Tensor,
    index: Tensor,
    reduction: str = "batchmean",
    log_target: bool = True,
) -> Tensor:
    """The divergence of logits from a teacher of which the `k` most probable classes are known.

    `input` are logits [..., classes]; `target` [..., k] are the teacher's log-probabilities (or
    probabilities, without `log_target`) of the classes `index`. Of each row it is the sum over
    those classes of p * (log p - log_softmax(input)); classes that are not named add nothing. A
    mean is over rows. The softmax of the logits is never in memory.
    """
    no_gradient_of("kl_div_topk", target=target)
    return _kl_div_topk(input, target, index, reduction, log_target)[0]
