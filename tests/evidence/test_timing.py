"""Timing: medians, their intervals, turns and synchronisation."""

from __future__ import annotations

import math
import random
import time

import pytest
import torch

from anymetal.evidence.timing import (
    LEAST_ROUNDS,
    Times,
    device_clock,
    interval_ranks,
    measure,
    summarise,
)


def test_quantiles() -> None:
    times = summarise([float(i) for i in range(100, 0, -1)])
    assert (times.p20, times.p50, times.p80) == (21.0, 50.5, 81.0)
    assert times.low < times.p50 < times.high
    assert times.samples == 100


@pytest.mark.parametrize("count", [6, 25, 101])
def test_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    generator = random.Random(count)
    low, high = interval_ranks(count)
    runs = 2000
    inside = 0
    for _ in range(runs):
        ordered = sorted(generator.expovariate(1.0) for _ in range(count))
        inside += ordered[low] <= math.log(2) <= ordered[high]
    assert inside / runs > 0.94


def test_slower_needs_intervals_apart() -> None:
    fast = Times(9, 10, 11, 9, 11, 20)
    near = Times(10, 11, 12, 10, 12, 20)
    slow = Times(19, 20, 21, 19, 21, 20)
    assert slow.slower_than(fast) and not fast.slower_than(slow)
    assert not near.slower_than(fast)


def test_contenders_take_turns_between_synchronisations() -> None:
    events: list[str] = []
    measure(
        {"a": lambda: (events.append("a"), time.sleep(0.001)), "b": lambda: events.append("b")},
        lambda: events.append("|"),
        rounds=LEAST_ROUNDS,
        seconds=0,
    )
    text = "".join(events)
    rounds = text.split("|a|")[-LEAST_ROUNDS:]
    assert len(rounds) == LEAST_ROUNDS
    assert all(set(one.strip("|")) == {"b"} for one in rounds)


def test_times_are_microseconds() -> None:
    times = measure({"sleep": lambda: time.sleep(0.002)}, lambda: None, rounds=6, seconds=0)
    assert 2000 <= times["sleep"].p50 < 60000


def test_stops_after_the_least_rounds_when_over_time() -> None:
    calls: list[int] = []
    times = measure(
        {"slow": lambda: (calls.append(1), time.sleep(0.001))},
        rounds=50,
        seconds=0,
        least_rounds=3,
        warm_up=1,
    )
    assert times["slow"].samples == 3
    assert len(calls) == 5  # one to warm up, one to see how long it takes
    assert times["slow"].minimum <= times["slow"].p50


class Gpu:
    """What torch says of a GPU: events that tell how long was between them, and a log of it all."""

    def __init__(self) -> None:
        self.now = 0.0  # milliseconds
        self.log: list[str] = []

    def Event(self, **_: bool) -> Gpu.Moment:
        return Gpu.Moment(self)

    def work(self, name: str, milliseconds: float) -> None:
        self.log.append(name)
        self.now += milliseconds

    class Moment:
        def __init__(self, gpu: Gpu) -> None:
            self._gpu, self.at = gpu, 0.0

        def record(self) -> None:
            self.at = self._gpu.now

        def elapsed_time(self, other: Gpu.Moment) -> float:
            return other.at - self.at


def test_a_gpu_is_timed_by_its_events_behind_a_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu()
    cache = type("Properties", (), {"L2_cache_size": 64})()
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: cache)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: gpu.work("wait", 1.0))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: gpu.work("sleep", cycles / 1e6))
    monkeypatch.setattr(torch.cuda, "Event", gpu.Event)
    device_clock.cache_clear()
    try:
        sample = device_clock(torch.device("cpu"))(lambda: gpu.work("call", 0.003), 1)
        gpu.log.clear()
        assert math.isclose(sample(), 3.0)
    finally:
        device_clock.cache_clear()
    assert gpu.log == ["sleep", "call", "call", "call", "call", "wait"]
