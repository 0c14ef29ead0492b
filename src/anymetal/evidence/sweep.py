"""A question and a call go in; the launch shapes that could answer it are tried, and the best kept.

Every candidate's result is judged before it is timed, and one that is wrong, or that cannot be
launched, is kept as a failure. A candidate replaces the policy's own value only where it is faster
beyond the noise.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from anymetal.evidence.race import race
from anymetal.evidence.timing import Call, clock_of
from anymetal.policy import policy
from anymetal.policy.policy import Question
from anymetal.policy.policy_file import Row
from anymetal.policy.tuning_cache import Key, Trial, Tuned

GROUP_SIZES = (32, 64, 128, 256, 512, 1024)
MOST_CANDIDATES = 48

Candidate = tuple[int, tuple[tuple[str, int], ...]]


# A call, and what is wrong with the result of a fresh one: None when it is right.
Prepared = tuple[Call, Callable[[], "str | None"]]


@dataclass(frozen=True)
class Subject:
    """What is tuned: the candidates, and what makes a call that asks the question.

    The call is made when it is its turn: the tensors of all would be in memory at once.
    """

    question: Question
    key: Key
    candidates: tuple[Candidate, ...]  # the first is the policy's own value
    prepare: Callable[[], Prepared]


def sweep(subject: Subject, device: torch.device, seconds: float) -> Tuned:
    """Try every candidate, `seconds` each at most; the first is the policy's own value."""
    try:
        return _swept(subject, device, seconds)
    except Exception as error:
        failed = tuple(_trial(one, _words(error)) for one in subject.candidates)
        return Tuned(subject.key, None, failed)


def _swept(subject: Subject, device: torch.device, seconds: float) -> Tuned:
    call, fault = subject.prepare()
    trials = [_verified(subject.question, one, fault) for one in subject.candidates]
    calls = {
        i: _launched_as(subject.question, subject.candidates[i], call)
        for i, trial in enumerate(trials)
        if trial.failure is None
    }
    times, best = race(calls, clock_of(device), seconds)
    for i, measured in times.items():
        trials[i] = replace(trials[i], microseconds=measured.p50)
    return Tuned(subject.key, None if best is None else trials[best], tuple(trials))


def candidates(row: Row) -> list[Candidate]:
    """The row's own value first, then every combination of what it says may be tried."""
    sizes = row.candidates.get("group_size", GROUP_SIZES)
    names = [name for name in row.candidates if name != "group_size"]
    fixed = {name: value for name, value in row.values.items() if name not in names}
    found = [_candidate(row.group_size, row.values)]
    for size, *values in itertools.product(sizes, *(row.candidates[name] for name in names)):
        candidate = _candidate(size, {**fixed, **dict(zip(names, values, strict=True))})
        if candidate not in found:
            found.append(candidate)
    return found[:MOST_CANDIDATES]


def exported(results: Sequence[tuple[Question, Tuned]], title: str) -> str:
    """A policy file of the values that are better than the package's, for the devices they were
    measured on. Its rows can be put into the package's file as they are."""
    operators: dict[str, list[str]] = {}
    for question, tuned in results:
        row = policy.row_for(question)
        best = tuned.best
        if best is not None and (best.group_size, best.values) != (row.group_size, row.values):
            operators.setdefault(_answer(question, best, row), []).append(question.operator)
    lines = [f"# {title}", "", "version = 1"]
    for answer, names in operators.items():
        listed = ", ".join(f'"{name}"' for name in names)
        lines += [
            "",
            "[[policy]]",
            f"operator = [{listed}]" if names[1:] else f"operator = {listed}",
        ]
        lines.append(answer)
    return "\n".join(lines) + "\n"


def _answer(question: Question, best: Trial, row: Row) -> str:
    """A row without its operators."""
    lines = [
        f'strategy = "{question.strategy}"',
        f'dtype = "{question.dtype}"',
        f'shape_class = "{question.shape_class}"',
        f'device = "{policy.device_families(question.device)[0]}"',
        f"group_size = {best.group_size}",
    ]
    if best.values:
        lines.append(f"values = {_table(best.values)}")
    if row.candidates:
        tried = {name: list(options) for name, options in row.candidates.items()}
        lines.append(f"candidates = {_table(tried)}")
    return "\n".join(lines)


def _table(values: Mapping[str, object]) -> str:
    return f"{{ {', '.join(f'{name} = {value}' for name, value in values.items())} }}"


def _candidate(size: int, values: Mapping[str, int]) -> Candidate:
    return size, tuple(sorted(values.items()))


@contextlib.contextmanager
def under(question: Question, candidate: Candidate) -> Iterator[None]:
    """Calls inside the block are launched as the candidate says."""
    size, values = candidate
    with policy.override(question.operator, question.strategy, group_size=size, **dict(values)):
        yield


def _launched_as(question: Question, candidate: Candidate, call: Call) -> Call:
    def launched() -> object:
        with under(question, candidate):
            return call()

    return launched


def _verified(question: Question, candidate: Candidate, fault: Callable[[], str | None]) -> Trial:
    try:
        with under(question, candidate):
            return _trial(candidate, fault())
    except Exception as error:
        return _trial(candidate, _words(error))


def _trial(candidate: Candidate, failure: str | None) -> Trial:
    size, values = candidate
    return Trial(size, dict(values), None, failure)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
