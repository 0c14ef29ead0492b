"""cross_entropy: the loss of rows of logits, whose softmax is never in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F

from anymetal.launch.error_buffer import checked_at_the_end
from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import (
    AnyOperator,
    Arguments,
    Autocast,
    Case,
    Cost,
    on_call,
    operator,
    variants,
)
from anymetal.ops.declare.checks import check_dtype, check_input, check_like, check_shape
from anymetal.ops.declare.elementwise import choice_for
from anymetal.ops.declare.layout import aligned, group_shape
from anymetal.ops.losses.targets import (
    INDICES,
    check_fraction,
    check_reduction,
    legacy,
    no_gradient_of,
    wide,
    words_of,
)

SOURCE = "cross_entropy.metal"
Tensor = torch.Tensor
Optional = torch.Tensor | None
_STEP, _EIGHT = 4, 8
_ERRORS = 2  # the buffer that targets out of range are reported to


# --- what a call is -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """What a loss is made with, besides its tensors."""

    ignore_index: int = -100
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    softcap: float = 0.0

    @classmethod
    def of(cls, call: Arguments) -> Numbers:
        return cls(**{field.name: getattr(call, field.name) for field in fields(cls)})

    def check(self, name: str) -> None:
        check_fraction(name, "label_smoothing", self.label_smoothing)
        if self.softcap < 0.0:
            raise ValueError(f"{name}: argument 'softcap' expects 0 or more, got {self.softcap}")


@dataclass(frozen=True)
class Logits:
    """Logits as [outer, classes, inner] with their targets; a row is one outer and one inner."""

    tensor: Tensor
    outer: int
    classes: int
    inner: int
    target: Tensor
    weight: Optional
    numbers: Numbers
    first: int = 0
    all_classes: int = 0

    @property
    def rows(self) -> int:
        return self.outer * self.inner

    @property
    def has_chances(self) -> bool:
        return self.target.is_floating_point()

    def buffers(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits, classes, shares and weights; what is not there is never read."""
        weight = torch.empty(1, device=self.tensor.device) if self.weight is None else self.weight
        if self.has_chances:
            none = torch.empty(1, dtype=torch.int32, device=self.tensor.device)
            return self.tensor, none, self.target.contiguous(), weight.float().contiguous()
        return self.tensor, words_of(self.target), self.tensor, weight.float().contiguous()

    def struct(self, scale_step: int = 0) -> dict[str, Any]:
        numbers = self.numbers
        return {
            "classes": self.classes,
            "first": self.first,
            "all_classes": self.all_classes or self.classes,
            "inner": self.inner,
            "scale_step": scale_step,
            "is_wide": self.target.dtype == torch.int64,
            "has_weight": self.weight is not None,
            "has_chances": self.has_chances,
            "smoothing": numbers.label_smoothing,
            "z_loss": numbers.z_loss,
            "softcap": numbers.softcap,
            "ignored": numbers.ignore_index,
        }

    def launch_rows(self, operator: AnyOperator, kernel: str, *buffers: Any) -> None:
        """A threadgroup for all rows that stand side by side."""
        steps = -(-self.classes * self.inner // (_STEP * SIMDGROUP))
        most = choice_for(operator, self.tensor, "looped", "long_rows").group_size
        team = min(most, steps * SIMDGROUP)
        variants.record(operator.name, self.tensor.dtype, "looped", 1)
        operator.kernel(kernel, self.tensor)(
            *buffers, threads=(team, self.outer), group_size=(team, 1)
        )

    def in_eights(self, operator: AnyOperator) -> bool:
        """Whether rows are read eight classes at a time: by the policy, where they divide so."""
        choice = choice_for(operator, self.tensor, "looped", "long_rows")
        divides = self.classes % _EIGHT == 0 and aligned(self.tensor, _EIGHT)
        plain = not self.numbers.softcap
        return choice.values.get("width", 1) == _EIGHT and divides and plain

    def launch_each(self, operator: AnyOperator, kernel: str, *buffers: Any, **named: Any) -> None:
        """A thread a row."""
        threads = (self.inner, self.outer)
        choice = choice_for(operator, self.tensor, "elementwise")
        variants.record(operator.name, self.tensor.dtype, "elementwise", 1)
        operator.kernel(kernel, self.tensor)(
            *buffers, threads=threads, group_size=group_shape(threads, choice.group_size), **named
        )


def logits_of(input: Tensor, target: Tensor, weight: Optional, numbers: Numbers) -> Logits:
    """Class dimension 1, or 0 where there is no batch."""
    dense = input.contiguous()
    at = min(input.dim() - 1, 1)
    outer, inner = math.prod(input.shape[:at]), math.prod(input.shape[at + 1 :])
    return Logits(dense, outer, input.shape[at], inner, target, weight, numbers)


def losses_of(operator: AnyOperator, logits: Logits, states: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each row and what it counts in a mean; `states` are written for the gradient."""
    device = logits.tensor.device
    losses, counted = (torch.empty(logits.rows, device=device) for _ in range(2))
    if logits.rows == 0:
        return losses, counted
    x, target, _, weight = logits.buffers()
    numbers = logits.struct()
    if not logits.has_chances:
        logits.launch_each(
            operator, "cross_entropy_targets", target, numbers, error_buf_idx=_ERRORS
        )
    found, results = row_states(operator, logits), (losses, counted, states, numbers)
    logits.launch_each(operator, "cross_entropy_losses", x, target, weight, found, *results)
    return losses, counted


def row_states(operator: AnyOperator, logits: Logits) -> Tensor:
    """Of each row the largest logit, the sum of exp(x - largest), of shares and of shares * x."""
    found = torch.empty(logits.rows, 4, device=logits.tensor.device)
    if logits.rows:
        x, _, chances, weight = logits.buffers()
        buffers = (x, chances, weight, found, logits.struct())
        if logits.inner == 1:
            name = "cross_entropy_rows_vec8" if logits.in_eights(operator) else "cross_entropy_rows"
            logits.launch_rows(operator, name, *buffers)
        else:
            logits.launch_each(operator, "cross_entropy_columns", *buffers)
    return found


def write_gradient(
    operator: AnyOperator, logits: Logits, scale: Tensor, states: Tensor, gradient: Tensor
) -> None:
    """The gradient of the logits, which may lie in their place. One scale, or one each row."""
    if gradient.numel():
        numbers = logits.struct(scale_step=int(scale.numel() > 1))
        buffers = (*logits.buffers(), scale, states, gradient, numbers)
        logits.launch_rows(operator, "cross_entropy_backward", *buffers)


def check_target(name: str, input: Tensor, target: Tensor, shape: Sequence[int]) -> None:
    """Classes of rows, or shares of all classes."""
    if isinstance(target, Tensor) and target.is_floating_point():
        check_like(name, "target", target, "input", input)
        check_shape(name, "target", target, input.shape, "that of 'input', shares of each class")
        return
    check_classes(name, input, target, shape)


def check_classes(name: str, input: Tensor, target: Tensor, shape: Sequence[int]) -> None:
    """The class of each row, of 32 or 64 bits."""
    check_dtype(name, "target", target, INDICES)
    if target.device != input.device:
        raise ValueError(
            f"{name}: argument 'target' is on {target.device}, but 'input' is on {input.device}."
            f" Move it with .to({str(input.device)!r})"
        )
    check_shape(name, "target", target, shape, "that of 'input' without its classes")


def check_weight(name: str, input: Tensor, weight: Optional, classes: int) -> None:
    if weight is None:
        return
    check_like(name, "weight", weight, "input", input)
    check_shape(name, "weight", weight, [classes], "one of each class")


# --- the operator ---------------------------------------------------------------------------------


def reference(
    input: Tensor,
    target: Tensor,
    weight: Optional = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss by torch's operators, and what the kernels keep for the gradient."""
    # As kernels: rounded once, at the end.
    x = wide(input)
    x = softcap * torch.tanh(x / softcap) if softcap else x
    at = min(x.dim() - 1, 1)
    w = None if weight is None else wide(weight).detach()
    chances = target.is_floating_point()
    target = wide(target).detach() if chances else target.long()
    losses = F.cross_entropy(
        x, target, w, ignore_index=ignore_index, reduction="none", label_smoothing=label_smoothing
    )
    lse = torch.logsumexp(x, at)
    kept = torch.ones_like(lse) if chances else (target != ignore_index).to(x.dtype)
    losses = losses + z_loss * lse * lse * kept
    each = torch.ones(x.shape[at], dtype=x.dtype, device=x.device) if w is None else w
    if chances:
        total = lse.new_tensor(float(lse.numel()))
        along = [-1 if i == at else 1 for i in range(x.dim())]
        mixed = target * (1 - label_smoothing) + label_smoothing / x.shape[at]
        share = (each.view(along) * mixed).sum(at)
    else:
        of_class = each[target.clamp(0, max(x.shape[at] - 1, 0))] * kept
        total = of_class.sum()
        even = label_smoothing / max(x.shape[at], 1) * each.sum()
        share = (1 - label_smoothing) * of_class + even * kept
    output = losses if reduction == "none" else losses.sum()
    output = output / total if reduction == "mean" else output
    states = torch.stack([lse, share + 2 * z_loss * lse * kept], -1).reshape(-1, 2)
    return output.to(input.dtype), states.detach(), total.detach()


@on_call
def _timed(call: Arguments) -> Any:
    """torch's own, which keeps no states; it has no z-loss and no softcap."""
    if call.z_loss or call.softcap:
        return reference(**vars(call))
    return F.cross_entropy(
        call.input,
        call.target,
        call.weight,
        ignore_index=call.ignore_index,
        reduction=call.reduction,
        label_smoothing=call.label_smoothing,
    )


def _backward_reference(
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Optional,
    states: Tensor,
    total: Tensor,
    *options: Any,
    **named: Any,
) -> Tensor:
    def loss(x: Tensor) -> Tensor:
        return reference(x, target, weight, *options, **named)[0]

    found: Tensor = torch.func.vjp(loss, input)[1](grad)[0]
    return found


def case(
    shape: Sequence[int], *, chances: bool = False, weight: bool = False, **options: Any
) -> Case:
    """Logits, and a class for each row or shares of all; one row in five is ignored."""

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        def random(*sizes: int) -> Tensor:
            return torch.randn(sizes, generator=generator)

        at = min(len(shape) - 1, 1)
        rows = [size for i, size in enumerate(shape) if i != at]
        target = torch.randint(0, max(shape[at], 1), rows, generator=generator)
        target[torch.rand(rows, generator=generator) < 0.2] = options.get("ignore_index", -100)
        if chances:
            target = random(*shape).softmax(at).to(dtype)
        args: list[Any] = [(3.0 * random(*shape)).to(dtype).to(device), target.to(device)]
        if weight:
            args.append((random(shape[at]).abs() + 0.5).to(dtype).to(device))
        return args, dict(options)

    words = ["x".join(map(str, shape)), *(["chances"] if chances else [])]
    words += [*(["weight"] if weight else []), *(f"{n}={v}" for n, v in options.items())]
    return Case(" ".join(words), make)


@operator(
    source=SOURCE,
    reference=reference,
    timed=_timed,
    cases=[
        case((0, 5), reduction="sum"),
        case((3, 1), reduction="none"),
        case((7, 33), weight=True, label_smoothing=0.1),
        case((3, 5, 7), weight=True, ignore_index=2, z_loss=1e-2, label_smoothing=0.2),
        case((5, 32), chances=True, weight=True, label_smoothing=0.1, softcap=5.0),
        case((9, 2000), z_loss=1e-3, softcap=10.0),
    ],
    bench=[case((256, 4096)), case((128, 32000)), case((256, 512), label_smoothing=0.1)],
    results=["output", "states", "total"],
    detached=["states", "total"],
    cost=lambda input, target, *_, **__: Cost(read=input.nbytes + target.nbytes, write=4),
    autocast=Autocast("float32", like="cross_entropy_loss"),
    again=True,
)
def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    name = "cross_entropy"
    check_input(name, input)
    check_reduction(name, reduction)
    Numbers(ignore_index, label_smoothing, z_loss, softcap).check(name)
    if input.dim() == 0:
        raise ValueError(f"{name}: argument 'input' expects one dimension or more, got shape []")
    at = min(input.dim() - 1, 1)
    shape = [*input.shape[:at], *input.shape[at + 1 :]]
    check_target(name, input, target, shape)
    check_weight(name, input, weight, input.shape[at])
    if target.is_floating_point() and ignore_index >= 0:
        raise RuntimeError(
            f"{name}: ignore_index is not supported for floating point target, got {ignore_index}"
        )
    output = input.new_empty(shape if reduction == "none" else [])
    states = input.new_empty((math.prod(shape), 2), dtype=torch.float32)
    return output, states, input.new_empty([], dtype=torch.float32)


@_cross_entropy.run
@on_call
def _(results: tuple[Tensor, Tensor, Tensor], call: Arguments) -> None:
    output, states, total = results
    logits = logits_of(call.input, call.target, call.weight, Numbers.of(call))
    with checked_at_the_end():
        losses, counted = losses_of(_cross_entropy, logits, states)
        if logits.has_chances:
            total.fill_(logits.rows)
        else:
            torch.sum(counted, 0, out=total)
        reduce_into(output, losses, total, call.reduction)


def reduce_into(output: Tensor, losses: Tensor, total: Tensor, reduction: str) -> None:
    if reduction == "none":
        output.copy_(losses.view(output.shape))
    else:
        summed = losses.sum()
        output.copy_(summed / total if reduction == "mean" else summed)


def scale_of(grad: Tensor, total: Tensor, reduction: str) -> Tensor:
    """What the gradient of each row, or of all, is multiplied with."""
    scale = grad.float()
    return (scale / total if reduction == "mean" else scale).reshape(-1).contiguous()


@_cross_entropy.gradient(
    of=["input"],
    reference=_backward_reference,
    cost=lambda grad, input, *_, **__: Cost(read=input.nbytes, write=input.nbytes),
)
def cross_entropy_backward(
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    states: Tensor,
    total: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> Tensor:
    """The gradient of the logits, from each row's saved log-sum-exp."""
    check_input("cross_entropy_backward", grad, "grad")
    check_input("cross_entropy_backward", input)
    return torch.empty_like(input, memory_format=torch.contiguous_format)


@cross_entropy_backward.run
@on_call
def _(output: Tensor, call: Arguments) -> None:
    logits = logits_of(call.input, call.target, call.weight, Numbers.of(call))
    scale = scale_of(call.grad, call.total, call.reduction)
    write_gradient(cross_entropy_backward, logits, scale, call.states.float().contiguous(), output)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> Tensor:
    """The cross entropy of logits and targets, as F.cross_entropy; classes are dimension 1.

    `z_loss` adds z_loss * logsumexp(logits)^2 to the loss of each row that is not ignored, and
    `softcap` replaces logits x by softcap * tanh(x / softcap). The softmax is never in memory: the
    gradient is made of the logits and one log-sum-exp a row. A target out of range is an error.
    """
    shares = target if target.is_floating_point() else None
    no_gradient_of("cross_entropy", weight=weight, target=shares)
    reduction = legacy(reduction, size_average, reduce)
    return _cross_entropy(
        input, target, weight, ignore_index, reduction, label_smoothing, z_loss, softcap
    )[0]
