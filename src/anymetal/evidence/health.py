"""Every operator is run on this machine: numbers, gradients, registration and memory accesses."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from anymetal.checker.context import ActiveCheck
from anymetal.checker.report import Report
from anymetal.evidence.exercise import Exercise, spread
from anymetal.evidence.judge import Judgement, judge, worst
from anymetal.ops.declare import AnyOperator

DTYPES = ("fp32", "fp16", "bf16")
"""The names of the dtypes that reports have columns for."""


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be."""

    part: str  # results, gradients, opcheck or checker
    where: str
    message: str


@dataclass
class Health:
    """All that is known about one operator."""

    operator: str
    results: dict[str, list[Judgement]] = field(default_factory=dict)  # by dtype name
    gradients: dict[str, list[Judgement]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    opchecked: bool = False
    checked: int = 0
    cases: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.findings and self.cases > 0

    def worst_result(self, dtype: str) -> Judgement | None:
        return worst(self.results[dtype]) if self.results.get(dtype) else None

    def worst_gradient(self, dtype: str) -> Judgement | None:
        return worst(self.gradients[dtype]) if self.gradients.get(dtype) else None

    def findings_of(self, part: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.part == part]


@dataclass(frozen=True)
class Plan:
    """How thorough to be. Zero cases are all of them, in every dtype."""

    device: torch.device
    cases: int = 3
    opcheck: bool = True
    checker: bool = True


def examine(operator: AnyOperator, plan: Plan) -> Health:
    """Run one operator through everything; what it raises is a finding too."""
    start = time.perf_counter()
    health = Health(operator.name)
    for exercise in _sampled(operator, plan):
        _examine_numbers(exercise, health)
    if plan.checker:
        # A kernel is one template for all dtypes: where not all cases are asked for, one will do.
        for dtype in operator.dtypes if plan.cases == 0 else operator.dtypes[-1:]:
            _examine_accesses(_smallest(operator, dtype, plan), health)
    if plan.opcheck and operator.cases:
        _examine_registration(_smallest(operator, operator.dtypes[0], plan), health)
    if not operator.cases:
        health.findings.append(Finding("results", operator.name, "no cases are declared"))
    health.seconds = time.perf_counter() - start
    return health


def exercises(operator: AnyOperator, plan: Plan) -> Iterator[Exercise]:
    """Every dtype with a few of the cases."""
    for dtype in operator.dtypes:
        yield from _exercises(operator, dtype, plan.cases, plan.device)


def _sampled(operator: AnyOperator, plan: Plan) -> Iterator[Exercise]:
    """Likewise, with one case alone in all dtypes but the first: a kernel is one template."""
    for dtype in operator.dtypes:
        count = plan.cases if dtype == operator.dtypes[0] else min(plan.cases, 1)
        yield from _exercises(operator, dtype, count, plan.device)


def _exercises(
    operator: AnyOperator, dtype: torch.dtype, count: int, device: torch.device
) -> Iterator[Exercise]:
    for case in spread(operator.cases, count):
        yield Exercise(operator, dtype, case, device)


def _examine_numbers(exercise: Exercise, health: Health) -> None:
    health.cases += 1
    parts = [("results", health.results, exercise.judge_results)]
    if exercise.operator.differentiable:
        parts.append(("gradients", health.gradients, exercise.judge_gradients))
    for part, kept, act in parts:
        judgement = _guarded(part, exercise, health, act)
        if judgement is not None:
            kept.setdefault(exercise.dtype_name, []).append(judgement)
            if not judgement.passed:
                health.findings.append(Finding(part, exercise.label, str(judgement)))


def _examine_accesses(exercise: Exercise | None, health: Health) -> None:
    """The kernels under the checker: races, accesses out of bounds, unwritten results.

    A GPU cannot be watched, so this is always the CPU engine.
    """
    if exercise is None:
        return
    exercise = replace(exercise, device=torch.device("cpu"))
    args, kwargs = exercise.inputs()

    operator = exercise.operator

    def check(call: Callable[[], object], *, in_part: bool) -> None:
        # Small inputs: most of the time goes into compiling, and no finding depends on the level.
        with ActiveCheck(Report(), outputs=() if in_part else None, level=0) as active:
            call()
        for found in active.report.findings:
            where = f"{exercise.label}: {found.kernel}, line {found.line}"
            health.findings.append(Finding("checker", where, f"{found.kind}: {found.message}"))

    def act() -> None:
        in_part = operator.in_part or operator.gradient_in_part
        if operator.differentiable:
            check(lambda: exercise.gradients(operator, args, kwargs), in_part=in_part)
        if not operator.differentiable or in_part != operator.in_part:
            check(lambda: operator(*args, **kwargs), in_part=operator.in_part)
        health.checked += 1

    _guarded("checker", exercise, health, act)


def _examine_registration(exercise: Exercise | None, health: Health) -> None:
    """What torch asks of an operator, on the CPU: torch's own test knows no mps."""
    if exercise is None:
        return
    exercise = replace(exercise, device=torch.device("cpu"))
    args, kwargs = exercise.inputs()
    if exercise.operator.differentiable and not exercise.operator.mutates:
        args = [
            a.requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
            for a in args
        ]
    overload = getattr(torch.ops.anymetal, exercise.operator.name).default

    def act() -> None:
        torch.library.opcheck(overload, tuple(args), kwargs)
        health.opchecked = True

    _guarded("opcheck", exercise, health, act)


def compare_engines(operator: AnyOperator, plan: Plan) -> list[tuple[Exercise, Judgement]]:
    """The same calls on `plan.device` and on the CPU engine: the GPU judged as torch's own is.

    Here the CPU engine stands where torch stands elsewhere, so a GPU passes when its error against
    float64 is at most twice the CPU engine's, or below the floor.
    """
    compared = []
    for exercise in exercises(operator, plan):
        beside = Exercise(operator, exercise.dtype, exercise.case, torch.device("cpu"))
        with torch.no_grad():
            there = exercise.call(operator, *exercise.inputs())
            here = beside.call(operator, *beside.inputs())
            exact = exercise.call(operator.reference, *exercise.exact_inputs())
        compared.append((exercise, judge(there, here, exact, exercise.dtype)))
    return compared


def _smallest(operator: AnyOperator, dtype: torch.dtype, plan: Plan) -> Exercise | None:
    """A case in the middle: the first are empty or single elements, the last are long.

    It is one of those whose numbers are examined, so that its kernels are compiled once.
    """
    cases = list(spread(operator.cases, plan.cases))
    return Exercise(operator, dtype, cases[len(cases) // 2], plan.device) if cases else None


def _guarded(
    part: str, exercise: Exercise, health: Health, act: Callable[[], Judgement | None]
) -> Judgement | None:
    """What `act` returns; an exception becomes a finding with the last line of its traceback."""
    try:
        return act()
    except Exception as error:
        text = traceback.format_exception_only(error)[-1].strip()
        health.findings.append(Finding(part, exercise.label, text))
        return None


def passed(all_health: Sequence[Health]) -> bool:
    """Whether there was something to examine and all of it passes."""
    return bool(all_health) and all(health.passed for health in all_health)
