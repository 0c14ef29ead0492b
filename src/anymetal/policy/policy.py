"""A question goes in (operator, dtype, shape class, device, strategy), a launch shape comes out.

Five places are asked, and the first that knows decides: an `override` around the call, the user's
own files (ANYMETAL_POLICY, the project's, the one in the configuration directory), what `anymetal
tune` measured on this machine, the bundles that kernels come from, and the package's policies.toml.
"""

from __future__ import annotations

import contextlib
import functools
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import platformdirs

from anymetal import settings
from anymetal.engines import bundles
from anymetal.errors import PolicyError
from anymetal.launch.shape import group_size_fault
from anymetal.policy.policy_file import (
    DTYPES,
    PolicyFile,
    Row,
    Words,
    parse_table,
    read_policies,
)
from anymetal.project import TABLE, project
from anymetal.store.cache import digest_of

Item = TypeVar("Item")

PACKAGE_FILE = Path(__file__).parent / "policies.toml"


@dataclass(frozen=True)
class Question:
    """What decides a launch shape. `device` is a torch device type."""

    operator: str
    dtype: str
    shape_class: str
    device: str
    strategy: str

    def __str__(self) -> str:
        return (
            f"{self.operator}/{self.dtype}/{self.strategy} for {self.shape_class} on {self.device}"
        )


@dataclass(frozen=True)
class Choice:
    """The answer: threads of a threadgroup, further numbers, and where they come from."""

    group_size: int
    values: Mapping[str, int]
    origin: str
    candidates: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Override:
    """What `override` was given: None matches everything, or leaves a number as it is."""

    operator: str | None
    strategy: str | None
    group_size: int | None
    values: Mapping[str, int]

    def matches(self, question: Question) -> bool:
        return self.operator in (None, question.operator) and self.strategy in (
            None,
            question.strategy,
        )


class _Entered(Generic[Item]):
    """What blocks have entered, innermost last.

    A thread that has entered none of its own, such as one in which autograd runs a gradient, sees
    those of all threads.
    """

    def __init__(self, name: str) -> None:
        self._everywhere: list[Item] = []
        self._mine: ContextVar[tuple[Item, ...]] = ContextVar(name, default=())

    def __call__(self) -> Sequence[Item]:
        return self._everywhere and (self._mine.get() or tuple(self._everywhere))

    @contextlib.contextmanager
    def entering(self, item: Item) -> Iterator[None]:
        token = self._mine.set((*self._mine.get(), item))
        self._everywhere.append(item)
        try:
            yield
        finally:
            index = next(i for i, other in enumerate(self._everywhere) if other is item)
            del self._everywhere[index]
            self._mine.reset(token)


_overrides: _Entered[Override] = _Entered("overrides")
_recorders: _Entered[dict[Question, Choice]] = _Entered("recorders")

Tuned = Callable[[Question], "tuple[int, Mapping[str, int]] | None"]
_tuned: list[Tuned] = []


def choose(operator: str, dtype: str, shape_class: str, device: str, strategy: str) -> Choice:
    """How to launch an operator's kernel; an operator without a row is an error that says so."""
    device = _elsewhere[-1] if _elsewhere else device
    choice = _decided(operator, dtype, shape_class, device, strategy, settings.POLICY.value())
    overrides, recorders = _overrides(), _recorders()
    if overrides or recorders:
        question = Question(operator, dtype, shape_class, device, strategy)
        choice = _overridden(question, choice, overrides)
        for record in recorders:
            record[question] = choice
    return choice


@contextlib.contextmanager
def override(
    operator: str | None = None,
    strategy: str | None = None,
    *,
    group_size: int | None = None,
    **values: int,
) -> Iterator[None]:
    """Launch calls inside the block another way: `with override("softmax", group_size=64): ...`.

    A gradient is an operator of its own: `softmax_backward`.
    """
    with _overrides.entering(Override(operator, strategy, group_size, values)):
        yield


_elsewhere: list[str] = []


@contextlib.contextmanager
def as_if_on(device: str) -> Iterator[None]:
    """Questions inside the block are answered as for tensors of another device."""
    _elsewhere.append(device)
    try:
        yield
    finally:
        _elsewhere.pop()


@contextlib.contextmanager
def recorded() -> Iterator[dict[Question, Choice]]:
    """What calls inside the block ask, with the answers they get."""
    record: dict[Question, Choice] = {}
    with _recorders.entering(record):
        yield record


def use_tuned(source: Tuned) -> None:
    """Ask `source` before the package's rows: the tuning cache puts itself here."""
    _tuned.append(source)
    forget()


@contextlib.contextmanager
def untuned() -> Iterator[None]:
    """Questions inside the block are answered without what was tuned: a value that is measured
    stands beside the same values of others, whatever was measured before."""
    sources = _tuned[:]
    _tuned.clear()
    forget_answers()
    try:
        yield
    finally:
        _tuned[:] = sources
        forget_answers()


def forget_answers() -> None:
    """Decide again at the next question, by the files as they were read."""
    _decided.cache_clear()


def forget() -> None:
    """Read all files again at the next question."""
    forget_answers()
    _user_files.cache_clear()
    _package_file.cache_clear()


bundles.on_use.append(forget)


def written(record: Mapping[Question, Choice]) -> dict[str, dict[str, object]]:
    """Answers as a bundle keeps them."""
    return {
        str(question): {"group_size": choice.group_size, "values": dict(choice.values)}
        for question, choice in record.items()
    }


def user_file() -> Path:
    """Where a file of policies is looked for without a setting."""
    return platformdirs.user_config_path("anymetal") / "policies.toml"


def row_for(question: Question) -> Row:
    """The package's row for a question: what a tuned value is measured against."""
    files = [_package_file()]
    row = _best(files, question)
    if row is None:
        raise PolicyError(_missing(question))
    return row


def uses_collectives(strategy: str) -> bool:
    """Whether a strategy's kernels need whole simdgroups."""
    known: dict[str, bool] = {}
    for file in (_package_file(), *_user_files(settings.POLICY.value())):
        known.update(file.words.strategies)
    return known.get(strategy, True)


def digest() -> str:
    """Changes with the package's policies: a tuned value holds only beside the rows of its time."""
    return _package_file().digest


def device_families(device: str) -> tuple[str, ...]:
    """The names a device goes by in rows, most exact first.

    An mps tensor on another system than macOS is a virtual one: the CPU engine runs its kernels.
    """
    if device == "mps" and sys.platform != "darwin":
        return ("cpu",)
    if device == "mps":
        return (f"mps-{_apple_chip()}", "mps")
    return (device,)


@functools.lru_cache(maxsize=4096)
def _decided(
    operator: str, dtype: str, shape_class: str, device: str, strategy: str, user_setting: str
) -> Choice:
    question = Question(operator, dtype, shape_class, device, strategy)
    if question.dtype not in DTYPES:
        raise PolicyError(
            f"{question}: unknown dtype {question.dtype!r}; known: {', '.join(DTYPES)}"
        )
    row = _best(_user_files(user_setting), question)
    if row is None:
        for source in _tuned:
            tuned = source(question)
            if tuned is not None:
                return Choice(*tuned, "tuned", row_for(question).candidates)
        row = row_for(question)
        for bundle in bundles.every():
            shape = bundle.policies.get(str(question))
            if shape is not None:
                return Choice(shape["group_size"], shape["values"], "bundle", row.candidates)
    return Choice(row.group_size, row.values, row.place, row.candidates)


def _best(files: Sequence[PolicyFile], question: Question) -> Row | None:
    """The most exact row of the last file that has one for the question."""
    families = device_families(question.device)
    for file in reversed(files):
        found: Row | None = None
        most = -1
        for row in file.rows:
            exactness = row.exactness(
                question.operator,
                question.dtype,
                question.shape_class,
                families,
                question.strategy,
            )
            if exactness >= max(most, 0):
                found, most = row, exactness
        if found is not None:
            return found
    return None


def _overridden(question: Question, choice: Choice, overrides: Sequence[Override]) -> Choice:
    group_size, values, changed = choice.group_size, dict(choice.values), False
    for entry in overrides:
        if entry.matches(question):
            changed = True
            group_size = entry.group_size or group_size
            values.update(entry.values)
    if not changed:
        return choice
    fault = group_size_fault(group_size, whole_simdgroups=uses_collectives(question.strategy))
    if fault is not None:
        raise PolicyError(f"{question}: override: {fault}")
    return Choice(group_size, values, "override", choice.candidates)


def _missing(question: Question) -> str:
    return (
        f"no launch policy for {question}: add a [[policy]] row with operator ="
        f' "{question.operator}" and strategy = "{question.strategy}" to {PACKAGE_FILE.name}, or'
        f" to a file of your own named by {settings.POLICY.variable}"
    )


@functools.cache
def _package_file() -> PolicyFile:
    return read_policies(PACKAGE_FILE)


@functools.cache
def _user_files(setting: str) -> tuple[PolicyFile, ...]:
    """The user's files, the one that decides last at the end."""
    known: Words = _package_file().words
    files = []
    if user_file().exists():
        files.append(read_policies(user_file(), known))
    files += _project_files(known)
    if setting:
        files.append(read_policies(Path(setting).expanduser(), known))
    return tuple(files)


def _project_files(known: Words) -> list[PolicyFile]:
    """What `[tool.anymetal]` of the project asks for, that the working directory is in."""
    asked = project()
    if asked.file is None or asked.policies is None:
        return []
    if isinstance(asked.policies, Path):
        return [read_policies(asked.policies, known)]
    return [parse_table(asked.policies, f"{TABLE}.policies", asked.file, known)]


@functools.cache
def _apple_chip() -> str:
    """m1, m2 ...: the chip's generation, which decides its GPU's family."""
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        brand = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return digest_of(platform.platform())[:8]
    words = brand.lower().split()
    return words[1] if len(words) > 1 else "unknown"
