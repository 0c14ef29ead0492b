"""Operators go in; out come the questions that their calls ask, each with a call to tune it by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from anymetal.evidence.exercise import Exercise
from anymetal.evidence.judge import judge
from anymetal.evidence.measure import BACKWARD, FORWARD, Contender, exercises
from anymetal.evidence.sweep import Subject
from anymetal.ops.declare import AnyOperator
from anymetal.policy import policy
from anymetal.policy.tuning_cache import key_for


def subjects(
    operators: Sequence[AnyOperator], dtypes: Sequence[torch.dtype] | None, device: torch.device
) -> list[Subject]:
    """One for each question; of several shapes that ask the same one, the last decides."""
    found: dict[policy.Question, Subject] = {}
    for operator in operators:
        for exercise in exercises(operator, dtypes, device, 0):
            for subject in _asked(exercise):
                found[subject.question] = subject
    return list(found.values())


def _asked(exercise: Exercise) -> Iterator[Subject]:
    directions = [FORWARD, BACKWARD] if exercise.operator.differentiable else [FORWARD]
    for direction in directions:
        contender = Contender(exercise, exercise.operator, direction)
        with policy.recorded() as questions:
            contender.call()
        for question in questions:
            key = key_for(question)
            if key is not None:
                fault = _Judge(exercise, direction)
                yield Subject(question, key, contender.call, fault)


class _Judge:
    """Judges fresh results of the operator; what it is compared with is computed once."""

    def __init__(self, exercise: Exercise, direction: str) -> None:
        self._exercise, self._direction = exercise, direction
        self._known: tuple[list[torch.Tensor], list[torch.Tensor]] | None = None

    def __call__(self) -> str | None:
        exercise, direction = self._exercise, self._direction
        if self._known is None:
            reference = exercise.operator.reference
            self._known = (
                Contender(exercise, exercise.torch_function, direction).results(),
                Contender(exercise, reference, direction, exact=True).results(),
            )
        results = Contender(exercise, exercise.operator, direction).results()
        judgement = judge(results, *self._known, exercise.dtype)
        return None if judgement.passed else str(judgement)
