"""Operators go in; out come the questions that their calls ask, each with a call to tune it by.

A call asks about more than it launches: rows that are long also ask how short ones would be. So the
calls are made without running any kernel, with every candidate, and a question is tuned by a call
whose launches depend on the answer. Candidates that are launched alike are timed once.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from anymetal.evidence.exercise import Exercise
from anymetal.evidence.judge import flat
from anymetal.evidence.measure import BACKWARD, FORWARD, Contender, exercises
from anymetal.evidence.sweep import Candidate, Prepared, Subject, candidates, under
from anymetal.launch.guarded import watched
from anymetal.launch.requested import Requests, requests
from anymetal.ops.declare import AnyOperator, Case
from anymetal.ops.declare.kernel_file import forget_kernels
from anymetal.policy import policy
from anymetal.policy.policy import Question
from anymetal.policy.tuning_cache import has_kernels, key_for

_log = logging.getLogger("anymetal.launch.tuning")

Ways = tuple[object, ...]


@dataclass(frozen=True)
class Asker:
    """A pass of a call that asks questions."""

    exercise: Exercise
    direction: str

    def contender(self) -> Contender:
        return Contender(self.exercise, self.exercise.operator, self.direction)

    def on(self, device: torch.device) -> Asker:
        return Asker(replace(self.exercise, device=device), self.direction)

    def owns(self, question: Question) -> bool:
        """Whether the question is about this operator or its gradient, not one that it calls."""
        name = self.exercise.operator.name
        return question.operator in (name, f"{name}_backward")


@dataclass(frozen=True)
class Plan:
    """A question, the call that it is tuned by, and the candidates that are launched differently.

    The policy's own value is the first of them. Those that cannot be launched are among them.
    """

    question: Question
    asker: Asker
    candidates: tuple[Candidate, ...]
    ways: int  # how many of them can be launched

    @property
    def rank(self) -> tuple[bool, int]:
        """Of two calls, the one of the question's own dtype that tells more candidates apart."""
        return self.asker.exercise.dtype_name == self.question.dtype, self.ways


def subjects(
    operators: Sequence[AnyOperator], dtypes: Sequence[torch.dtype] | None, device: torch.device
) -> list[Subject]:
    """One for each question that the operators' benchmarks can tell something about."""
    found = []
    cuda = device.type == "cuda"
    with policy.as_if_on(device.type) if cuda else contextlib.nullcontext():
        planned = plans(operators, dtypes, device)
    for plan in planned:
        key = key_for(plan.question)
        if key is not None:
            prepare = functools.partial(_prepared, plan.asker.on(device))
            found.append(Subject(plan.question, key, plan.candidates, prepare))
    return found


def plans(
    operators: Sequence[AnyOperator], dtypes: Sequence[torch.dtype] | None, device: torch.device
) -> list[Plan]:
    """How to tune each question: by a call of its own operator, where one tells candidates apart,
    else by a call of another that launches it."""
    found: dict[Question, Plan] = {}
    asked: dict[Question, list[Asker]] = {}
    for operator in operators:
        with without_running(operator):
            for exercise in exercises(operator, dtypes, _place_of(operator, device), 0):
                for asker in _askers(exercise):
                    for question, plan in _planned(asker).items():
                        if plan is None:
                            asked.setdefault(question, []).append(asker)
                        elif question not in found or plan.rank >= found[question].rank:
                            found[question] = plan
    for question in asked.keys() - found.keys():
        plan = _by_others(question, asked[question])
        if plan is not None:
            found[question] = plan
    return sorted(found.values(), key=lambda plan: _order(operators, plan))


def _place_of(operator: AnyOperator, device: torch.device) -> torch.device:
    """Where calls that run no kernel have their tensors. An index that nobody wrote is an exception
    on a CPU; on an NVIDIA GPU torch's kernels then fail, and all that come after."""
    runs = device.type != "cuda" or looks_at_results(operator)
    return device if runs else torch.device("cpu")


@contextlib.contextmanager
def without_running(operator: AnyOperator, found: Requests | None = None) -> Iterator[None]:
    """Calls of the operator run no kernel inside the block, and are noted in `found`.

    Functions of anymetal.linalg look at their results on the way, pivots and signs of convergence:
    they do run.
    """
    runs = looks_at_results(operator)
    forget_kernels()
    try:
        with contextlib.nullcontext() if runs and found is None else requests(found, run=runs):
            yield
    finally:
        forget_kernels()


def looks_at_results(operator: AnyOperator) -> bool:
    return operator.room.__module__.startswith("anymetal.linalg.")


def request_candidates(
    operators: Sequence[AnyOperator],
    dtypes: Sequence[torch.dtype] | None,
    found: Requests,
) -> None:
    """Adds every kernel that tuning the operators launches, with the tensors of this CPU.

    A candidate that cannot be launched here cannot be there: `anymetal tune` will say so.
    """
    for plan in plans(operators, dtypes, torch.device("cpu")):
        operator = plan.asker.exercise.operator
        with without_running(operator, found):
            contender = plan.asker.contender()
            for candidate in plan.candidates:
                with contextlib.suppress(Exception), under(plan.question, candidate):
                    contender.call()
                    contender.results()


def _askers(exercise: Exercise) -> Iterator[Asker]:
    yield Asker(exercise, FORWARD)
    if exercise.operator.differentiable:
        yield Asker(exercise, BACKWARD)


def _planned(asker: Asker) -> dict[Question, Plan | None]:
    """The questions of a call; with a plan where they are its own operator's and decide."""
    try:
        contender = asker.contender()
        with policy.recorded() as questions:
            contender.call()
    except Exception as error:
        _log.warning("%s is not tuned: %s", asker.exercise.label, error)
        return {}
    known = [question for question in questions if has_kernels(question)]
    return {q: _plan(q, asker, contender) if asker.owns(q) else None for q in known}


def _by_others(question: Question, askers: Sequence[Asker]) -> Plan | None:
    for asker in reversed(askers):
        with without_running(asker.exercise.operator):
            plan = _plan(question, asker, asker.contender())
        if plan is not None:
            return plan
    return None


def _plan(question: Question, asker: Asker, contender: Contender) -> Plan | None:
    """None where the launches of the call are the same with every candidate."""
    seen: set[Ways] = set()
    kept = []
    for candidate in candidates(policy.row_for(question)):
        ways = _ways(question, candidate, contender)
        if ways is None or ways not in seen:
            kept.append(candidate)
        if ways is not None:
            seen.add(ways)
    return Plan(question, asker, tuple(kept), len(seen)) if len(seen) > 1 else None


def _ways(question: Question, candidate: Candidate, contender: Contender) -> Ways | None:
    """The launches of a call with a candidate; None where it cannot be launched."""
    try:
        with watched() as launches, under(question, candidate):
            contender.call()
    except Exception:
        return None
    return tuple(one.way for one in launches)


def _order(operators: Sequence[AnyOperator], plan: Plan) -> tuple[int, str]:
    """Plans of one call behind each other: what they are judged by is computed once."""
    exercise = plan.asker.exercise
    return operators.index(exercise.operator), f"{exercise.label} {plan.asker.direction}"


@functools.lru_cache(maxsize=1)
def _prepared(asker: Asker) -> Prepared:
    """What is timed and who judges it, for as long as the questions of one call are tuned."""
    judge = _Judge(asker)
    return judge.contender.call, judge


class _Judge:
    """Judges fresh results of the operator; what it is compared with is computed once.

    A result that is equal to one that was right, bit by bit, is right.
    """

    def __init__(self, asker: Asker) -> None:
        self._exercise, self._direction = _made_once(asker.exercise), asker.direction
        self.contender = Asker(self._exercise, self._direction).contender()
        forward = asker.direction == FORWARD
        exercise = self._exercise
        self._judge = exercise.judged_results if forward else exercise.judged_gradients
        self._right: list[torch.Tensor] = []

    @functools.cached_property
    def _known(self) -> tuple[Any, Any]:
        exercise, reference = self._exercise, self._exercise.operator.reference
        exact = Contender(exercise, reference, self._direction, exact=True).results()
        if exercise.device.type == "cuda":  # where it is compared, candidate by candidate
            exact = [one if one is None else one.to(exercise.device) for one in exact]
        return Contender(exercise, exercise.torch_function, self._direction).results(), exact

    def __call__(self) -> str | None:
        results = self.contender.results()
        tensors = flat(results)
        if self._right and _equal(tensors, self._right):
            return None
        judgement = self._judge(results, *self._known)
        if judgement.passed:
            self._right = [one.clone() for one in tensors]
        return None if judgement.passed else str(judgement)


def _made_once(exercise: Exercise) -> Exercise:
    """The exercise with inputs that are copied, strides and all: making them takes longer than most
    kernels do."""
    kept = functools.cache(exercise.inputs)
    return replace(exercise, case=Case(exercise.case.name, lambda *_: copy.deepcopy(kept())))


def _equal(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))
