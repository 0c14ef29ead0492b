"""A call that takes configurations goes in; each is tried, and the best comes out.

One that cannot be launched is skipped with its reason. The others' results are compared with each
other before anything is timed, and one that differs from most of them is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from anymetal.errors import AnymetalError
from anymetal.evidence.judge import floor_of, relative_error
from anymetal.evidence.race import race
from anymetal.evidence.timing import clock_of
from anymetal.policy.tuning_cache import device_name, engine_name
from anymetal.store.cache import default_store, digest_of
from anymetal.store.fingerprint import row

Configuration = Mapping[str, Any]
_KIND = "autotuned"
SCHEMA = 1
# Sums in another order differ by more than a rounding.
_ROUNDINGS = 16


class AutotuneError(AnymetalError):
    """No configuration works, or nobody can tell which results are right."""


@dataclass(frozen=True)
class Tried:
    """One configuration: its microseconds, or why it has none."""

    configuration: Configuration
    microseconds: float | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Autotuned:
    """What a sweep found: everything that must be the same for it to hold, and the trials."""

    function: str
    key: str
    device: str
    engine: str
    system: str
    torch: str
    code: str  # digest of the function's text and its configurations
    kernels: Mapping[str, str]  # digests of the sources of the kernels it launched
    trials: tuple[Tried, ...]
    best: int

    @property
    def configuration(self) -> Configuration:
        return self.trials[self.best].configuration


@dataclass(frozen=True)
class Place:
    """Where a sweep is kept: its function and key, on this device, system and torch."""

    function: str
    key: str
    code: str
    device: torch.device

    def digest(self) -> str:
        kind = self.device.type
        about = (device_name(kind), engine_name(kind), row("system"), row("torch"))
        return digest_of(str(SCHEMA), self.function, self.key, self.code, *about)

    def read(self) -> Autotuned | None:
        entry = default_store().get(_KIND, self.digest())
        return None if entry is None else _from_note(entry.note)

    def keep(self, trials: Sequence[Tried], best: int, kernels: Mapping[str, str]) -> Autotuned:
        kind = self.device.type
        found = Autotuned(
            *(self.function, self.key, device_name(kind), engine_name(kind)),
            *(row("system"), row("torch"), self.code),
            kernels={name: digest_of(text) for name, text in kernels.items()},
            trials=tuple(trials),
            best=best,
        )
        default_store().put(_KIND, self.digest(), asdict(found))
        return found


def kept() -> list[Autotuned]:
    """All that is kept on this machine."""
    return [_from_note(entry.note) for entry in default_store().all(_KIND)]


def _from_note(note: Mapping[str, Any]) -> Autotuned:
    trials = tuple(Tried(**trial) for trial in note["trials"])
    return Autotuned(**{**note, "trials": trials})


def sweep_configurations(
    name: str,
    configurations: Sequence[Configuration],
    results: Callable[[Configuration], list[torch.Tensor]],
    call: Callable[[Configuration], object],
    device: torch.device,
    seconds: float,
) -> tuple[list[Tried], int]:
    """The trials in order, and which is best: the first, unless another is faster beyond noise.

    `results` is of a fresh call; `call` is what is timed, `seconds` for each configuration.
    """
    trials: list[Tried] = []
    outcomes: dict[int, list[torch.Tensor]] = {}
    for number, configuration in enumerate(configurations):
        try:
            outcomes[number] = results(configuration)
            trials.append(Tried(configuration))
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            trials.append(Tried(configuration, failure=failure.splitlines()[0]))
    if not outcomes:
        reasons = "\n".join(f"  {_text(one.configuration)}: {one.failure}" for one in trials)
        raise AutotuneError(f"{name}: no configuration works:\n{reasons}")
    for number, failure in disagreements(name, configurations, outcomes).items():
        trials[number] = replace(trials[number], failure=failure)
        del outcomes[number]
    calls = {number: _bound(call, configurations[number]) for number in outcomes}
    times, best = race(calls, clock_of(device), seconds)
    for number, measured in times.items():
        trials[number] = replace(trials[number], microseconds=measured.p50)
    return trials, min(outcomes) if best is None else best


def disagreements(
    name: str,
    configurations: Sequence[Configuration],
    outcomes: Mapping[int, list[torch.Tensor]],
) -> dict[int, str]:
    """The configurations whose results differ from those of most others."""
    camps: list[list[int]] = []
    for number, outcome in outcomes.items():
        camp = next((c for c in camps if _agree(outcome, outcomes[c[0]])), None)
        if camp is None:
            camps.append([number])
        else:
            camp.append(number)
    camps.sort(key=len, reverse=True)
    if len(camps) > 1 and len(camps[0]) == len(camps[1]):
        left, right = (_text(configurations[camp[0]]) for camp in camps[:2])
        raise AutotuneError(
            f"{name}: results with {left} and with {right} differ, and as many configurations agree"
            " with the one as with the other"
        )
    return {
        number: f"its result differs from that of {len(camps[0])} others"
        for camp in camps[1:]
        for number in camp
    }


def _agree(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(map(_alike, left, right))


def _alike(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if not left.is_floating_point():
        return torch.equal(left, right)
    return relative_error(left, right) <= _ROUNDINGS * floor_of(left.dtype)


def _bound(call: Callable[[Configuration], object], one: Configuration) -> Callable[[], object]:
    return lambda: call(one)


def _text(configuration: Configuration) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in configuration.items())
