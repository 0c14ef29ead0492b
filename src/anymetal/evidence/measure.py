"""One operator, dtype and shape go in; a row of a benchmark comes out.

The operator stands beside torch's own and beside the composition of plain operators that people
write instead. Every contender's result is judged before and after it is timed, and one that is
wrong gets no time. Inputs are made once, dense and of the dtype that the row names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from anymetal.evidence.exercise import Exercise, differentiable, spread, upstream_like
from anymetal.evidence.judge import Judgement, flat, worst
from anymetal.evidence.timing import Call, Times, measure, rest_on, synchroniser
from anymetal.launch.guarded import watched
from anymetal.ops.declare import NAMESPACE, OPERATORS, AnyOperator, Cost, variants

OURS, TORCH, NAIVE = "ours", "torch", "naive"
CONTENDERS = (OURS, TORCH, NAIVE)
FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Row:
    """One line of a benchmark. Times are there for contenders whose results are right."""

    operator: str
    dtype: str
    case: str
    direction: str
    elements: int
    times: Mapping[str, Times]
    judgements: Mapping[str, Judgement]
    least_bytes: int | None  # that any implementation must move
    moved_bytes: int | None  # that the kernels asked for; None where it was not counted
    variant: str
    launch: str
    flops: int | None = None  # additions and multiplications that the call asks for
    launches: int | None = None  # of kernels in a call

    @property
    def right(self) -> bool:
        """Whether nothing is known against the result."""
        return OURS not in self.judgements or self.judgements[OURS].passed

    @property
    def gigabytes_per_second(self) -> float | None:
        """The least bytes over the time: what the operator's user sees, not what caches do."""
        if self.least_bytes is None or OURS not in self.times:
            return None
        return self.least_bytes / self.times[OURS].p50 / 1e3

    @property
    def gigaflops(self) -> float | None:
        """Billions of additions and multiplications a second."""
        if not self.flops or OURS not in self.times:
            return None
        return self.flops / self.times[OURS].p50 / 1e3

    @property
    def traffic(self) -> float | None:
        """Bytes that the kernels asked for, over the least possible."""
        if not self.least_bytes or self.moved_bytes is None:
            return None
        return self.moved_bytes / self.least_bytes

    @property
    def ratio(self) -> float | None:
        """Our time over torch's: below 1 is faster."""
        if OURS not in self.times or TORCH not in self.times:
            return None
        return self.times[OURS].p50 / self.times[TORCH].p50

    @property
    def verdict(self) -> str:
        """Which of the two to use here, where the intervals of their medians are apart."""
        if not self.right:
            return "wrong"
        if self.ratio is None:
            return "-"
        if self.times[OURS].slower_than(self.times[TORCH]):
            return "use torch's"
        return "use ours" if self.times[TORCH].slower_than(self.times[OURS]) else "even"


@dataclass(frozen=True)
class Effort:
    """How much time to spend. Zero sizes are all of them."""

    seconds: float = 0.5
    sizes: int = 0
    traffic: bool = True


def forwards(operators: Sequence[AnyOperator]) -> list[AnyOperator]:
    """Operators without the gradients of others: those are timed as backward passes."""
    gradients = {f"{name}_backward" for name in OPERATORS}
    kept = [operator for operator in operators if operator.name not in gradients]
    return kept or list(operators)


def exercises(
    operator: AnyOperator, dtypes: Sequence[torch.dtype] | None, device: torch.device, sizes: int
) -> Iterator[Exercise]:
    """What to measure of an operator."""
    for dtype in dtypes or operator.dtypes:
        if dtype in operator.dtypes:
            for case in spread(operator.bench or operator.cases[-2:], sizes):
                yield Exercise(operator, dtype, case, device)


def measure_rows(exercise: Exercise, effort: Effort) -> Iterator[Row]:
    """The forward pass, and the backward pass where there is one."""
    yield measure_row(exercise, FORWARD, effort)
    if exercise.operator.differentiable:
        yield measure_row(exercise, BACKWARD, effort)


def measure_row(exercise: Exercise, direction: str, effort: Effort) -> Row:
    """Judge and time the contenders of one row."""
    contenders = {
        name: Contender(exercise, function, direction)
        for name, function in _functions(exercise).items()
    }
    exact = Contender(exercise, exercise.operator.reference, direction, exact=True).results()
    torch_results = contenders[TORCH].results()

    judge = exercise.judged_results if direction == FORWARD else exercise.judged_gradients

    def judged() -> dict[str, Judgement]:
        return {n: judge(one.results(), torch_results, exact) for n, one in contenders.items()}

    counts = exercise.device.type != "cuda"  # counters run on the CPU
    before = judged()
    calls = {n: one.call for n, one in contenders.items() if n == TORCH or before[n].passed}
    if exercise.operator.timed is not None:
        calls[TORCH] = Contender(exercise, exercise.operator.timed, direction).call
    times = measure(
        calls,
        synchroniser(exercise.device),
        seconds=effort.seconds,
        rest=rest_on(exercise.device),
    )
    after = judged()
    judgements = {name: worst([before[name], after[name]]) for name in contenders}
    variant, launch, launches = _launch_of(contenders[OURS])
    least_bytes, flops = _least_costs(contenders[OURS])
    return Row(
        operator=exercise.operator.name,
        dtype=exercise.dtype_name,
        case=exercise.case.name,
        direction=direction,
        elements=max((t.numel() for t in flat(exercise.inputs()[0])), default=0),
        times={n: t for n, t in times.items() if n == TORCH or judgements[n].passed},
        judgements=judgements,
        least_bytes=least_bytes,
        moved_bytes=_moved_bytes(contenders[OURS]) if effort.traffic and counts else None,
        variant=variant,
        launch=launch,
        flops=flops,
        launches=launches,
    )


class Contender:
    """One implementation with inputs of its own, ready to be called again and again."""

    def __init__(
        self,
        exercise: Exercise,
        function: Callable[..., Any],
        direction: str,
        *,
        exact: bool = False,
    ) -> None:
        args, kwargs = exercise.exact_inputs() if exact else exercise.inputs()
        self._backward = direction == BACKWARD
        if not self._backward:
            self.call: Call = lambda: function(*args, **kwargs)
            self._fresh = exercise.exact_inputs if exact else exercise.inputs
            self._function, self._exercise = function, exercise
            return
        args, kwargs, leaves = differentiable(args, kwargs)
        outputs = [one for one in flat(function(*args, **kwargs)) if one.requires_grad]
        upstream = [upstream_like(output, exercise.dtype) for output in outputs]
        self.call = lambda: torch.autograd.grad(
            outputs, leaves, upstream, retain_graph=True, allow_unused=True
        )

    def results(self) -> Any:
        """What a call gives, from inputs that nobody has written to; None for no gradient."""
        if self._backward:
            return self.call()
        with torch.no_grad():
            args, kwargs = self._fresh()
            return flat(self._exercise.call(self._function, args, kwargs))


def _functions(exercise: Exercise) -> dict[str, Callable[..., Any]]:
    functions: dict[str, Callable[..., Any]] = {
        OURS: exercise.operator,
        TORCH: exercise.torch_function,
    }
    naive = exercise.operator.naive
    if naive is not None:
        functions[NAIVE] = naive
    return functions


def _launch_of(contender: Contender) -> tuple[str, str, int]:
    """The kernels that a call chose, how they were launched, and how many launches that were."""
    with variants.recorded() as keys, watched() as launches:
        contender.call()
    groups = dict.fromkeys(
        f"{shape_text(one.threads)}/{shape_text(one.group_size)}" for one in launches
    )
    return " + ".join(dict.fromkeys(keys)), " + ".join(groups), len(launches)


def shape_text(size: Any) -> str:
    """Threads of a grid or a threadgroup, as a table shows them."""
    return "x".join(str(one) for one in size) if isinstance(size, list | tuple) else str(size)


class _Costs(TorchDispatchMode):
    """Adds up the costs of the operators that are called, the gradients among them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes: int | None = 0
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        namespace, name = func.name().split("::")
        operator = OPERATORS.get(name.split(".")[0]) if namespace == NAMESPACE else None
        if operator is not None:
            self._add(operator, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _add(self, operator: AnyOperator, args: Any, kwargs: dict[str, Any]) -> None:
        if operator.cost is None or self.bytes is None:
            self.bytes = None
            return
        cost = cost_of_call(operator, operator.cost, args, kwargs)
        self.bytes += cost.read + cost.write
        self.flops += cost.flops


def cost_of_call(
    operator: AnyOperator, cost: Callable[..., Cost], args: Any, kwargs: dict[str, Any]
) -> Cost:
    """An operator's cost of a call; options are passed by name, as the cases do."""
    names = [a.name for a in getattr(torch.ops.anymetal, operator.name).default._schema.arguments]
    first = next((i for i, a in enumerate(args) if not _is_tensors(a)), len(args))
    named = dict(zip(names[first:], args[first:], strict=False))
    return cost(*args[:first], **named, **kwargs)


def _is_tensors(value: Any) -> bool:
    listed = value if isinstance(value, list | tuple) else [value]
    return bool(listed) and all(isinstance(tensor, torch.Tensor) for tensor in listed)


def _least_costs(contender: Contender) -> tuple[int | None, int | None]:
    """What the operators of a call must move at least, and their arithmetic, as they declare it."""
    with _Costs() as costs:
        contender.call()
    return costs.bytes or None, costs.flops or None


def _moved_bytes(contender: Contender) -> int | None:
    """Bytes that the kernels of one call read and write, counted by the engine."""
    with watched(counting=True) as launches:
        contender.call()
    moved = [one.moved_bytes for one in launches if one.moved_bytes is not None]
    return sum(moved) if launches and len(moved) == len(launches) else None
