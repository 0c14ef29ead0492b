"""A question and a call go in; the launch shapes that could answer it are tried, and the best kept.

Every candidate's result is judged before it is timed, and one that is wrong, or that cannot be
launched, is kept as a failure. A candidate replaces the policy's own value only where it is faster
beyond the noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from anymetal.evidence.timing import Call, Times, measure, synchroniser
from anymetal.policy import policy
from anymetal.policy.policy import Question
from anymetal.policy.policy_file import Row
from anymetal.policy.tuning_cache import Key, Trial, Tuned

GROUP_SIZES = (32, 64, 128, 256, 512, 1024)
MOST_CANDIDATES = 48

Candidate = tuple[int, tuple[tuple[str, int], ...]]


@dataclass(frozen=True)
class Subject:
    """What is tuned: a call that asks the question, and a judge of its result.

    `fault` says what is wrong with the result of a fresh call, None when it is right.
    """

    question: Question
    key: Key
    call: Call
    fault: Callable[[], str | None]


def sweep(subject: Subject, device: torch.device, seconds: float) -> Tuned:
    """Try every candidate, `seconds` each; the first is the policy's own value."""
    options = candidates(policy.row_for(subject.question))
    trials = [_verified(subject, candidate) for candidate in options]
    good = [i for i, trial in enumerate(trials) if trial.failure is None]
    calls = {i: _under(subject, options[i]) for i in good}
    times = measure(calls, synchroniser(device), seconds=seconds * len(good))
    for i, measured in times.items():
        trials[i] = replace(trials[i], microseconds=measured.p50)
    return Tuned(subject.key, _best(trials, times), tuple(trials))


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
    """A policy file of the best values, for the devices they were measured on."""
    lines = [f"# {title}", "", "version = 1"]
    for question, tuned in results:
        if tuned.best is None:
            continue
        lines += [
            "",
            "[[policy]]",
            f'operator = "{question.operator}"',
            f'strategy = "{question.strategy}"',
            f'dtype = "{question.dtype}"',
            f'shape_class = "{question.shape_class}"',
            f'device = "{policy.device_families(question.device)[0]}"',
            f"group_size = {tuned.best.group_size}",
        ]
        if tuned.best.values:
            values = ", ".join(f"{name} = {value}" for name, value in tuned.best.values.items())
            lines.append(f"values = {{ {values} }}")
    return "\n".join(lines) + "\n"


def _candidate(size: int, values: Mapping[str, int]) -> Candidate:
    return size, tuple(sorted(values.items()))


def _under(subject: Subject, candidate: Candidate) -> Call:
    """The call, launched as the candidate says."""
    size, values = candidate
    question = subject.question

    def call() -> object:
        with policy.override(question.operator, question.strategy, group_size=size, **dict(values)):
            return subject.call()

    return call


def _verified(subject: Subject, candidate: Candidate) -> Trial:
    size, values = candidate
    question = subject.question
    try:
        with policy.override(question.operator, question.strategy, group_size=size, **dict(values)):
            failure = subject.fault()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    return Trial(size, dict(values), None, failure)


def _best(trials: Sequence[Trial], times: Mapping[int, Times]) -> Trial | None:
    """The fastest, unless the first (the policy's own) may be as fast."""
    if not times:
        return None
    fastest = min(times, key=lambda i: times[i].p50)
    if 0 in times and not times[0].slower_than(times[fastest]):
        fastest = 0
    return trials[fastest]
