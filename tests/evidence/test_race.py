"""Races: who is timed for how long, and when another than the first is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from anymetal.evidence.race import race
from anymetal.evidence.timing import LEAST_ROUNDS, Call


class Track:
    """Runners by number, with the samples that each gives; and how many were taken."""

    def __init__(self, **samples: Iterator[float] | float) -> None:
        self._samples = {int(name[1:]): given for name, given in samples.items()}
        self.taken: Counter[int] = Counter()

    def calls(self) -> dict[int, Call]:
        return {number: lambda number=number: number for number in self._samples}

    def clock(self, call: Call, warm_up: int) -> Callable[[], float]:
        number = call()
        assert isinstance(number, int)

        def sample() -> float:
            self.taken[number] += 1
            given = self._samples[number]
            # A little noise, so that intervals have a width.
            tail = 0.1 * (self.taken[number] % 3)
            return tail + (given if isinstance(given, float) else next(given))

        return sample

    def best(self) -> int | None:
        return race(self.calls(), self.clock, 1.0)[1]


def in_turn(early: float, rounds: int, late: float) -> Iterator[float]:
    for _ in range(rounds):
        yield early
    while True:
        yield late


def test_the_first_stays_unless_another_is_clearly_faster() -> None:
    assert Track(_0=100.0, _1=98.0, _2=99.0).best() == 0
    assert Track(_0=100.0, _1=98.0, _2=95.0).best() == 2
    assert Track(_0=100.0).best() == 0
    assert Track(_1=100.0, _3=50.0).best() == 3
    assert race({}, Track().clock, 1.0) == ({}, None)


def test_one_that_was_lucky_once_does_not_win() -> None:
    lucky = in_turn(90.0, LEAST_ROUNDS + 25, 100.0)
    track = Track(_0=100.0, _1=lucky)
    assert track.best() == 0
    assert track.taken[1] > LEAST_ROUNDS + 25  # it was looked at once more


def test_those_far_behind_are_not_timed_for_long() -> None:
    track = Track(_0=100.0, _1=300.0, _2=101.0)
    times, _ = race(track.calls(), track.clock, 1.0)
    assert track.taken[1] == LEAST_ROUNDS < track.taken[2]
    assert times[1].p50 > 299


def test_a_first_that_is_far_behind_loses() -> None:
    assert Track(_0=300.0, _1=100.0, _2=101.0).best() == 1
