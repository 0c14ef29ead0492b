"""Callables go in, times come out: warmed up, synchronised, and taking turns.

Contenders are timed once a round, so that a noisy minute hits all of them alike. A median stands
with an interval that holds the true median in 95 of 100 runs, whatever the distribution.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypedDict, TypeVar

import torch

from anymetal.overrides.reasons import kind_of

Call = Callable[[], object]
# A call, and how often it is made before, go in; what takes a sample in microseconds comes out.
Clock = Callable[[Call, int], Callable[[], float]]
Name = TypeVar("Name", str, int)

WARM_UP = 2
# A sample shorter than this is mostly clock and loop; calls are repeated to fill it.
SAMPLE_SECONDS = 200e-6
LEAST_ROUNDS = 6  # fewer samples have no interval at 95 %
LEAST_CPU_ROUNDS = 3
_NORMAL_95 = 1.96

# On an NVIDIA GPU: calls in a sample, cycles in a second (no chip has more), and the seconds that
# Python takes for events and for clearing the cache, beside the call.
_QUEUED = 4
_CYCLES = 2_000_000_000
_BESIDE = 30e-6
_LONGEST_HEAD_START = 0.02


class Long(TypedDict):
    """Options of `measure` for calls of many milliseconds."""

    least_rounds: int
    warm_up: int
    rest: float


# torch's threads (OpenMP) spin for some milliseconds after a call, on processors that the next
# contender needs: each begins when they have gone to sleep.
REST = 0.02
LONG = Long(least_rounds=3, warm_up=1, rest=REST)


@dataclass(frozen=True)
class Times:
    """Microseconds of a call."""

    p20: float
    p50: float
    p80: float
    low: float
    high: float
    samples: int
    minimum: float = math.nan  # histories of earlier versions do not have these
    p25: float = math.nan
    p75: float = math.nan

    def slower_than(self, other: Times) -> bool:
        """Whether the intervals are apart: a difference that is not noise."""
        return self.low > other.high


def rest_on(device: torch.device) -> float:
    """Seconds between samples: none on a GPU, which would lower its clock meanwhile."""
    return REST if kind_of(device) in ("cpu", "virtual-mps") else 0.0


def synchroniser(device: torch.device) -> Callable[[], None]:
    """Waits until a device has done all it was told; the CPU always has."""
    if device.type == "mps":
        return torch.mps.synchronize
    if device.type == "cuda":
        return torch.cuda.synchronize
    return _nothing


def clock_of(device: torch.device) -> Clock:
    """Times calls on a device: by its own events where it is an NVIDIA GPU."""
    return device_clock(device) if device.type == "cuda" else host_clock(synchroniser(device))


def host_clock(synchronise: Callable[[], None]) -> Clock:
    """Times calls by the processor's clock, as often as it takes to fill a sample."""

    def clock(call: Call, warm_up: int) -> Callable[[], float]:
        repeats = _repeats(call, synchronise, warm_up)
        return lambda: _sample(call, repeats, synchronise)

    return clock


@functools.cache
def device_clock(device: torch.device) -> Clock:
    """Times calls by events of an NVIDIA GPU, each with an empty L2 cache.

    A small kernel takes less time than Python takes to launch it. So the GPU sleeps until a sample
    is queued, and what it then takes is its own time.
    """
    size = torch.cuda.get_device_properties(device).L2_cache_size
    other = torch.empty(2 * size, dtype=torch.uint8, device=device)
    events = [(_event(), _event()) for _ in range(_QUEUED)]

    def clock(call: Call, warm_up: int) -> Callable[[], float]:
        for _ in range(warm_up):
            call()
        head_start = int(_CYCLES * min(_LONGEST_HEAD_START, _QUEUED * _seconds_to_queue(call)))

        def sample() -> float:
            torch.cuda._sleep(head_start)  # type: ignore[no-untyped-call]
            for begin, end in events:
                other.zero_()
                begin.record()
                call()
                end.record()
            torch.cuda.synchronize()
            milliseconds = [float(begin.elapsed_time(end)) for begin, end in events]
            return sum(milliseconds) * 1e3 / _QUEUED

        return sample

    return clock


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _seconds_to_queue(call: Call) -> float:
    """What Python takes for a call and what belongs to it; the quicker of two, with some room."""
    least = math.inf
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - start)
    torch.cuda.synchronize()
    return 1.5 * least + _BESIDE


def measure(
    contenders: Mapping[Name, Call],
    synchronise: Callable[[], None] | None = None,
    *,
    clock: Clock | None = None,
    rounds: int = 25,
    seconds: float = 1.0,
    least_rounds: int = LEAST_ROUNDS,
    warm_up: int = WARM_UP,
    rest: float = 0.0,
) -> dict[Name, Times]:
    """Time every contender; stops after `rounds`, or after `seconds` when `least_rounds` are done.

    `synchronise` waits for the device, None is the CPU; or a `clock` takes the samples. Calls that
    take long may ask for fewer rounds and less warming up; below six samples the interval is their
    whole range. `rest` are seconds before each sample.
    """
    clock = clock or host_clock(synchronise or _nothing)
    sample = {name: clock(call, warm_up) for name, call in contenders.items()}
    samples: dict[Name, list[float]] = {name: [] for name in contenders}
    deadline = time.perf_counter() + seconds
    for done in range(rounds):
        if done >= least_rounds and time.perf_counter() > deadline:
            break
        for name in contenders:
            if rest:
                time.sleep(rest)
            samples[name].append(sample[name]())
    return {name: summarise(values) for name, values in samples.items()}


def least_cpu_times(
    contenders: Mapping[Name, Call], *, rounds: int = 15, seconds: float = 0.1
) -> dict[Name, float]:
    """The least CPU time of each contender, in microseconds, the contenders taking turns.

    With one thread (`one_thread`) other programs hardly show in it, so that ratios hold under load;
    threads that wait for others spend time, too. Calls have been made before.
    """
    repeats = {
        name: max(1, min(1000, round(SAMPLE_SECONDS * 1e6 / max(_cpu_sample(call, 1), 0.1))))
        for name, call in contenders.items()
    }
    least = dict.fromkeys(contenders, math.inf)
    deadline = time.perf_counter() + seconds
    for done in range(rounds):
        if done >= LEAST_CPU_ROUNDS and time.perf_counter() > deadline:
            break
        for name, call in contenders.items():
            least[name] = min(least[name], _cpu_sample(call, repeats[name]))
    return least


@contextmanager
def one_thread() -> Iterator[None]:
    """torch's operators and our kernels on the CPU, by one thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cpu_sample(call: Call, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) * 1e6 / repeats


def summarise(microseconds: list[float]) -> Times:
    """Quantiles of samples, and the interval of their median by order statistics."""
    ordered = sorted(microseconds)
    count = len(ordered)
    low, high = interval_ranks(count)
    return Times(
        _quantile(ordered, 0.2),
        statistics.median(ordered),
        _quantile(ordered, 0.8),
        ordered[low],
        ordered[high],
        count,
        ordered[0],
        _quantile(ordered, 0.25),
        _quantile(ordered, 0.75),
    )


def interval_ranks(count: int) -> tuple[int, int]:
    """The samples that enclose the true median with 95 %: how many fall below it is binomial."""
    half_width = _NORMAL_95 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - half_width))
    return low, count - 1 - low


def _repeats(call: Call, synchronise: Callable[[], None], warm_up: int) -> int:
    for _ in range(warm_up):
        call()
    microseconds = _sample(call, 1, synchronise)
    return max(1, min(1000, round(SAMPLE_SECONDS * 1e6 / max(microseconds, 0.1))))


def _sample(call: Call, repeats: int, synchronise: Callable[[], None]) -> float:
    synchronise()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    synchronise()
    return (time.perf_counter() - start) * 1e6 / repeats


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _nothing() -> None:
    pass
