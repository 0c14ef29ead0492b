"""Callables in, times out: contenders take turns, so that a noisy minute hits all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

Call = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """What was measured for one contender, in milliseconds."""

    minimum: float
    median: float
    rounds: int

    def to_json(self) -> dict[str, float | int]:
        return asdict(self)


def once(call: Call, repeat: int = 1) -> float:
    """Milliseconds of one call, averaged over `repeat` calls in a row."""
    start = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - start) * 1e3 / repeat


def interleave(
    contenders: Mapping[str, Call], rounds: int, seconds: float, repeat: int = 1
) -> dict[str, Times]:
    """Time every contender once a round, after one unmeasured round.

    Stops after `rounds` rounds or, when at least three are done, after `seconds`.
    """
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():
        call()
    deadline = time.perf_counter() + seconds
    for done in range(rounds):
        if done >= 3 and time.perf_counter() > deadline:
            break
        for name, call in contenders.items():
            samples[name].append(once(call, repeat))
    return {name: summarise(values) for name, values in samples.items()}


def summarise(milliseconds: list[float]) -> Times:
    return Times(min(milliseconds), statistics.median(milliseconds), len(milliseconds))
