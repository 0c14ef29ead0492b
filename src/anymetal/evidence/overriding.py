"""A function of torch's goes in; out comes its time with ours behind it over its time without.

The calls are those of our operators' benchmarks, as far as torch's function takes their arguments.
What a user sees is timed: the look at the arguments is part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from anymetal.evidence.exercise import Exercise, differentiable, upstream_like
from anymetal.evidence.judge import flat
from anymetal.evidence.measure import BACKWARD, FORWARD, Effort, exercises
from anymetal.evidence.timing import least_cpu_times, measure, synchroniser
from anymetal.ops.declare import OPERATORS
from anymetal.overrides.calls import replacement
from anymetal.overrides.counts import COUNTS
from anymetal.overrides.reasons import kind_of
from anymetal.overrides.switch import PLACES
from anymetal.overrides.table import Row

OURS, TORCH = "ours", "torch"
# Groups whose calls cost so much an element; elsewhere a large call may be a slow or a quick one.
_BY_ELEMENTS = ("activations", "norm", "softmax", "embedding", "losses", "indexing")
Function = Callable[..., Any]
# Parameters of a model for which optimizers are timed: a few large ones among many small.
_SIZES = (*[1 << 12] * 24, *[1 << 18] * 8)
# Of the largest element of torch's result in float64, whatever the dtype; health is the judge of
# errors, and of factors that are free up to signs.
_CLOSE = 0.02


@dataclass(frozen=True)
class Override:
    """One measurement: below 1 ours is faster."""

    name: str
    case: str
    direction: str
    ratio: float
    right: bool
    elements: int = 0  # of the largest tensor, where calls of several sizes were timed


def measure_override(
    row: Row, device: torch.device, dtypes: Sequence[torch.dtype] | None, effort: Effort
) -> Iterator[Override]:
    """Times of one function; none where torch's function takes no call of the benchmarks."""
    if row.group == "optim":
        yield _optimizer(row, device, effort)
        return
    place = PLACES[row.places[0]]
    original = getattr(place.holder, place.attribute)
    mine = replacement(row, place.path, original, {kind_of(device): 0})
    for operator in row.operators:
        for exercise in exercises(OPERATORS[operator], dtypes, device, effort.sizes):
            if _is_taken(row, exercise, original, mine):
                yield from _directions(row, exercise, (mine, original), effort)


def _is_taken(row: Row, exercise: Exercise, original: Function, mine: Function) -> bool:
    """Whether torch's function takes the arguments of an operator, and ours takes that call."""
    args, kwargs = exercise.inputs()
    try:
        original(*args, **kwargs)
    except (TypeError, ValueError, IndexError, RuntimeError):
        return False
    before = COUNTS.taken[row.name]
    mine(*args, **kwargs)
    return COUNTS.taken[row.name] > before


def _directions(
    row: Row, exercise: Exercise, functions: tuple[Function, Function], effort: Effort
) -> Iterator[Override]:
    label = f"{exercise.dtype_name} {exercise.case.name}"
    args, kwargs = exercise.inputs()
    original = functions[1]
    wide = exercise.exact_inputs()
    forward = [lambda f=f: f(*args, **kwargs) for f in functions]
    largest = max((one.numel() for one in flat(args)), default=0)
    elements = largest if row.group in _BY_ELEMENTS else 0
    timed = _timed(row, label, FORWARD, forward, exercise.device, effort)
    right = row.group == "linalg" or _close(flat(forward[0]()), flat(original(*wide[0], **wide[1])))
    yield replace(timed, elements=elements, right=right)
    backward = [_backward(exercise, exercise.inputs(), function) for function in functions]
    if backward[0] is None or backward[1] is None or not _works(backward[1]):
        return
    timed = _timed(row, label, BACKWARD, backward, exercise.device, effort)
    exact = _backward(exercise, wide, original)
    right = row.group == "linalg" or exact is None or _close(flat(backward[0]()), flat(exact()))
    yield replace(timed, elements=elements, right=right)


def _works(call: Function) -> bool:
    """Whether torch has this gradient at all."""
    try:
        call()
    except (NotImplementedError, RuntimeError):
        return False
    return True


def _backward(exercise: Exercise, inputs: Any, function: Function) -> Function | None:
    args, kwargs, leaves = differentiable(*inputs)
    outputs = [one for one in flat(function(*args, **kwargs)) if one.requires_grad]
    if not outputs:
        return None
    upstream = [upstream_like(one, exercise.dtype).to(one.dtype) for one in outputs]
    return lambda: torch.autograd.grad(
        outputs, leaves, upstream, retain_graph=True, allow_unused=True
    )


def _timed(
    row: Row,
    case: str,
    direction: str,
    calls: Sequence[Function | None],
    device: torch.device,
    effort: Effort,
) -> Override:
    ours, theirs = calls
    assert ours is not None and theirs is not None
    ratio = _ratio({OURS: ours, TORCH: theirs}, device, effort.seconds)
    return Override(row.name, case, direction, ratio, right=True)


def _ratio(calls: dict[str, Function], device: torch.device, seconds: float) -> float:
    """Ours over torch's: CPU time where the CPU computes, else the time until a GPU is done."""
    if kind_of(device) in ("cpu", "virtual-mps"):
        least = least_cpu_times(calls, seconds=seconds)
        return least[OURS] / least[TORCH]
    times = measure(calls, synchroniser(device), seconds=seconds)
    return times[OURS].minimum / times[TORCH].minimum


def _close(mine: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    pairs = list(zip(mine, others, strict=True))
    sizes = [float(other.abs().max()) if other.numel() else 0.0 for _, other in pairs]
    return all(
        torch.allclose(a.cpu().double(), b.cpu().double(), rtol=_CLOSE, atol=_CLOSE * size)
        for (a, b), size in zip(pairs, sizes, strict=True)
    )


def _optimizer(row: Row, device: torch.device, effort: Effort) -> Override:
    """A step of an optimizer, or the clipping of gradients, over a model's parameters."""
    place = PLACES[row.places[0]]
    original = getattr(place.holder, place.attribute)
    assert row.make is not None
    contenders = (row.make(row, place.path, original, {kind_of(device): 0}), original)
    calls, params = [], []
    for function in contenders:
        generator = torch.Generator().manual_seed(1)
        made = [torch.randn(size, generator=generator).to(device) for size in _SIZES]
        for tensor in made:
            tensor.requires_grad_()
            tensor.grad = torch.randn(tensor.shape, generator=generator).to(device)
        params.append(made)
        is_class = isinstance(original, type)
        calls.append(
            function(made, lr=1e-3).step if is_class else lambda f=function, m=made: f(m, 1e9)
        )
    for call in calls:
        call()
    right = _close([p.detach() for p in params[0]], [p.detach() for p in params[1]])
    timed = _timed(
        row, f"{len(_SIZES)} tensors", FORWARD, [_nothing_from(c) for c in calls], device, effort
    )
    return Override(row.name, timed.case, FORWARD, timed.ratio, right)


def _nothing_from(call: Function) -> Function:
    """A call for its effect."""

    def called() -> list[torch.Tensor]:
        call()
        return []

    return called
