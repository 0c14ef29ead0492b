"""Measured launch shapes on disk: an entry holds for one device, system, torch, kernel and policy.

Entries lie in the same store as compiled kernels: each is written to a file of its own and moved
into place, so processes may tune at once. What is read is checked again, because a file may come
from another release. A question whose kernel fails with every candidate is kept as a failure.
"""

from __future__ import annotations

import functools
import logging
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from anymetal.launch.shape import group_size_fault
from anymetal.policy import policy
from anymetal.policy.policy import Question
from anymetal.store.cache import default_store, digest_of
from anymetal.store.fingerprint import row

SCHEMA = 1
_KIND = "tuning"
_log = logging.getLogger("anymetal.launch.tuning")

# The text of the kernels behind an operator; a changed kernel has other best values.
_sources: dict[str, Callable[[], str]] = {}


@dataclass(frozen=True)
class Key:
    """Everything that must be the same for a measured value to hold."""

    operator: str
    dtype: str
    shape_class: str
    strategy: str
    device: str
    engine: str
    system: str
    torch: str
    kernel: str
    policy: str

    def digest(self) -> str:
        return digest_of(str(SCHEMA), *(str(part) for part in asdict(self).values()))


@dataclass(frozen=True)
class Trial:
    """One candidate: its microseconds, or why it has none."""

    group_size: int
    values: Mapping[str, int]
    microseconds: float | None
    failure: str | None = None


@dataclass(frozen=True)
class Tuned:
    """What a sweep found for one key: the best candidate, or None when all of them failed."""

    key: Key
    best: Trial | None
    trials: tuple[Trial, ...] = field(default_factory=tuple)


def register_source(operator: str, text: Callable[[], str]) -> None:
    """Say where an operator's kernels are; it is read when a tuned value is looked for."""
    _sources[operator] = text


def has_kernels(question: Question) -> bool:
    """Whether the kernels of a question's operator are known."""
    return question.operator in _sources


def key_for(question: Question) -> Key | None:
    """The key of a question on this machine; None for an operator whose kernels are not known, or
    a device that is not here (`anymetal compile` asks about those)."""
    absent = question.device == "cuda" and not torch.cuda.is_available()
    if absent or not has_kernels(question):
        return None
    return Key(
        operator=question.operator,
        dtype=question.dtype,
        shape_class=question.shape_class,
        strategy=question.strategy,
        device=device_name(question.device),
        engine=engine_name(question.device),
        system=row("system"),
        torch=row("torch"),
        kernel=digest_of(_sources[question.operator]()),
        policy=policy.digest(),
    )


def keep(tuned: Tuned) -> None:
    """Write an entry, in the place of an older one."""
    note = {"schema": SCHEMA, **asdict(tuned)}
    default_store().put(_KIND, tuned.key.digest(), note)
    policy.forget_answers()


def look_up(question: Question) -> tuple[int, Mapping[str, int]] | None:
    """The tuned group size and values for a question, if an entry's key matches and it is sound."""
    key = key_for(question)
    tuned = read(key) if key is not None else None
    if tuned is None or tuned.best is None:
        return None
    return tuned.best.group_size, tuned.best.values


def read(key: Key) -> Tuned | None:
    """The entry of a key; one that breaks a limit is reported and not used."""
    entry = default_store().get(_KIND, key.digest())
    if entry is None:
        return None
    try:
        return _checked(entry.note, key)
    except (KeyError, TypeError, ValueError) as error:
        _log.warning("tuning entry of %s/%s is not used: %s", key.operator, key.strategy, error)
        return None


def kept() -> list[Tuned]:
    """Every sound entry, of operators on whatever device."""
    found = []
    for entry in default_store().all(_KIND):
        try:
            found.append(_checked(entry.note, Key(**entry.note["key"])))
        except (KeyError, TypeError, ValueError) as error:
            _log.warning("a tuning entry is not shown: %s", error)
    return found


def device_name(device: str) -> str:
    """The processor or GPU that a torch device stands for on this machine."""
    family = policy.device_families(device)[0]
    if family == "cpu":
        return f"{_processor()}, {os.cpu_count()} cores"
    if family == "cuda":
        return str(torch.cuda.get_device_name())
    return f"Apple {family.removeprefix('mps-')} GPU"


def engine_name(device: str) -> str:
    """cpu or gpu: a value tuned on one is never used on the other."""
    return "cpu" if policy.device_families(device)[0] == "cpu" else "gpu"


def _checked(note: Mapping[str, Any], key: Key) -> Tuned:
    if note["schema"] != SCHEMA:
        raise ValueError(f"schema {note['schema']!r}, expected {SCHEMA}")
    if Key(**note["key"]) != key:
        raise ValueError("it belongs to another key")
    trials = tuple(Trial(**trial) for trial in note["trials"])
    best = Trial(**note["best"]) if note["best"] is not None else None
    if best is not None:
        _check_limits(best, key)
    return Tuned(key, best, trials)


def _check_limits(trial: Trial, key: Key) -> None:
    collectives = policy.uses_collectives(key.strategy)
    fault = group_size_fault(trial.group_size, whole_simdgroups=collectives)
    if type(trial.group_size) is not int or fault is not None:
        raise ValueError(fault or f"group_size is {trial.group_size!r}")
    for name, value in trial.values.items():
        if type(value) is not int or value < 0:
            raise ValueError(f"value '{name}' is {value!r}")


@functools.cache
def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if sys.platform == "linux" and information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


policy.use_tuned(look_up)
