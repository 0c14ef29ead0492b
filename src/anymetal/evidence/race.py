"""Calls that do the same go in; their times and the best of them come out.

All are timed for a few rounds, and those that may still win for longer. The first is what would be
taken without a measurement, and stays unless another is ahead of it beyond the noise and by more
than a few percent, twice: of many that are equally fast, one looks faster by chance.
"""

from __future__ import annotations

from collections.abc import Mapping

from anymetal.evidence.timing import LEAST_ROUNDS, Call, Clock, Times, measure

MARGIN = 1.03
# Medians of a few rounds are not off by more.
NEAR = 1.25


def race(
    calls: Mapping[int, Call], clock: Clock, seconds: float
) -> tuple[dict[int, Times], int | None]:
    """Times of all, and the number of the best; None where there are no calls.

    `seconds` are for each call, twice as many for the first and its rival at the end.
    """
    if not calls:
        return {}, None
    times = measure(calls, clock=clock, rounds=LEAST_ROUNDS, seconds=0)
    near = {i: calls[i] for i in _near(times)}
    first = min(calls)
    if near.keys() != {first}:
        times |= measure(near, clock=clock, seconds=seconds * len(near))
    fastest = min(times, key=lambda i: times[i].p50)
    if not _ahead(times[fastest], times[first]):
        return times, first
    pair = {i: calls[i] for i in (first, fastest)}
    times |= measure(pair, clock=clock, seconds=2 * seconds)
    return times, fastest if _ahead(times[fastest], times[first]) else first


def _near(times: Mapping[int, Times]) -> list[int]:
    """Those that a longer look may find to be the fastest."""
    fastest = min(times.values(), key=lambda one: one.p50)
    return [
        i
        for i, one in times.items()
        if one.p50 <= NEAR * fastest.p50 or not one.slower_than(fastest)
    ]


def _ahead(rival: Times, first: Times) -> bool:
    return first.slower_than(rival) and first.p50 > MARGIN * rival.p50
