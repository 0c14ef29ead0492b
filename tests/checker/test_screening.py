"""Large launches are screened by several workers; what is reported is what one worker finds."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from bad_kernel import BadKernel, all_kernels, run_checked
from mistakes import MISTAKES, UNUSUAL, Call
from test_mistakes import SOURCE

import anymetal
from anymetal.checker import checked, screening
from anymetal.checker.finding import Finding
from anymetal.checker.launch_state import Dispatch, Plan

GROUPS, SIZE = 192, 32
THREADS = GROUPS * SIZE
ALL = os.environ.get("ANYMETAL_TEST_ALL") == "1"
MANY = 30 if ALL else 6

KERNELS = """
#include <metal_stdlib>
using namespace metal;

#define KERNEL(NAME, ...)                                                        \\
  kernel void NAME(device float* x, device float* y, constant uint& n,           \\
                   uint i [[thread_position_in_grid]],                           \\
                   uint lane [[thread_index_in_threadgroup]],                    \\
                   uint group [[threadgroup_position_in_grid]]) { __VA_ARGS__ }

// Right ones.
KERNEL(doubled, y[i] = 2 * x[i];)
KERNEL(in_place, x[i] = 2 * x[i]; y[i] = x[i];)
KERNEL(all_read_one, y[i] = x[0] + x[n - 1 - i];)
KERNEL(by_row, float sum = 0; for (uint k = 0; k < 32; ++k) sum += x[32 * group + k]; y[i] = sum;)
KERNEL(halves_of_a_vector, y[(i * 7) % n] = x[(i * 7) % n];)
KERNEL(through_a_tile,
  threadgroup float tile[32];
  for (uint round = 0; round < 3; ++round) {
    tile[lane] = x[i] + round;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = tile[31 - lane];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  })
kernel void vectors(device float4* x, device float4* y, constant uint& n,
                    uint i [[thread_position_in_grid]]) {
  if (i < n / 4) y[i] = 2 * x[i];
}
kernel void packed(device packed_float2* x, device packed_float2* y, constant uint& n,
                   uint i [[thread_position_in_grid]]) {
  if (i < n / 2) y[i] = 2 * x[i];
}

// Wrong ones.
KERNEL(all_write_one, y[0] = x[i];)
KERNEL(all_write_the_same, y[0] = 1;)
KERNEL(next_first, y[i] = x[i]; if (lane == 31 && i + 1 < n) y[i + 1] = 0;)
KERNEL(half_way, y[i % (n / 2)] = x[i];)
KERNEL(last_group_reads_first, y[i] = i < n - 32 ? x[i] : y[i - n + 32];)
KERNEL(counts, x[uint(x[i]) % 7] += 1; y[i] = 0;)
KERNEL(one_past_the_end, y[i + 1] = x[i];)
KERNEL(adds_up, x[i] += 1; y[i] = lane == 31 ? x[n] : 0;)
KERNEL(no_barrier, threadgroup float tile[32]; tile[lane] = x[i]; y[i] = tile[31 - lane];)
KERNEL(every_other, if (i % 2) y[i] = x[i];)
KERNEL(one_waits, if (lane < 16 || group != 100) threadgroup_barrier(mem_flags::mem_none);)
kernel void vectors_meet(device float4* x, device float4* y, constant uint& n,
                         uint i [[thread_position_in_grid]]) {
  y[i / 4 / 2 * 2] = x[i / 4];
}

// The order of threadgroups is seen.
kernel void numbered(device float* x, device float* y, device atomic_uint& next,
                     uint i [[thread_position_in_grid]]) {
  y[atomic_fetch_add_explicit(&next, 1, memory_order_relaxed)] = x[i];
}
kernel void endless(device volatile uint* flag, uint group [[threadgroup_position_in_grid]]) {
  while (group == 100 && flag[0] == 0) {}
}
"""
RIGHT = (
    "doubled", "in_place", "all_read_one", "by_row", "halves_of_a_vector", "through_a_tile",
    "vectors", "packed",
)  # fmt: skip
WRONG = (
    "all_write_one", "all_write_the_same", "next_first", "half_way", "last_group_reads_first",
    "counts", "one_past_the_end", "adds_up", "no_barrier", "every_other", "one_waits",
    "vectors_meet",
)  # fmt: skip

Buffers = tuple[torch.Tensor, torch.Tensor]


class Screened:
    """Counts the launches that were screened, and runs a call with and without it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(checked, "screening_plan", self._plan)

    def _plan(self, dispatch: Dispatch) -> Plan:
        self.count += 1
        return screening.screening_plan(dispatch)

    def from_groups(self, least: int) -> None:
        self._monkeypatch.setattr(screening, "LEAST_GROUPS", least)
        self._monkeypatch.setattr(screening, "LEAST_THREADS", least)


@pytest.fixture
def screened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screened]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)  # clocks step over an epoch that is nobody's
    yield Screened(monkeypatch)
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def library() -> anymetal.ShaderLibrary:
    return anymetal.compile_shader(KERNELS)


def launch(library: anymetal.ShaderLibrary, name: str) -> tuple[Buffers, tuple[Finding, ...]]:
    x, y = torch.arange(THREADS, dtype=torch.float32), torch.full((THREADS,), -1.0)
    with anymetal.check() as report:
        getattr(library, name)(x, y, THREADS, threads=THREADS, group_size=SIZE)
    return (x, y), report.findings


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit by bit: a NaN is itself."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_are_silent_and_run_once(
    library: anymetal.ShaderLibrary, screened: Screened, name: str
) -> None:
    screened.from_groups(sys.maxsize)
    (x, y), alone = launch(library, name)
    assert not alone
    screened.from_groups(GROUPS)
    for _ in range(MANY):
        (other_x, other_y), findings = launch(library, name)
        assert not findings
        assert same(x, other_x)
        assert same(y, other_y)
    assert screened.count == MANY


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_reported_and_end_as_with_one_worker(
    library: anymetal.ShaderLibrary, screened: Screened, name: str
) -> None:
    screened.from_groups(sys.maxsize)
    (x, y), alone = launch(library, name)
    assert alone
    screened.from_groups(GROUPS)
    for _ in range(MANY):
        (other_x, other_y), findings = launch(library, name)
        assert findings == alone
        assert same(x, other_x)
        assert same(y, other_y)
    assert screened.count == MANY


def test_small_kernels_say_the_same(screened: Screened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad kernels and their twins, as if each were a large launch."""
    monkeypatch.setenv("ANYMETAL_CHECK_LEVEL", "0")  # as test_bad_kernels.py compiles them
    bad = [bad for bad in all_kernels() if bad.raises is None and not bad.keyword("seconds")]
    runs = [lambda bad=bad: reported(bad) for bad in (bad if ALL else bad[::3])]
    compare(screened, runs, at_least=100 if ALL else 40)


def test_mistakes_say_the_same(screened: Screened) -> None:
    library = anymetal.compile_shader(SOURCE.read_text(), name=str(SOURCE))
    calls = [call for m in MISTAKES if not m.raises for call in (m.wrong, m.right)]
    run = [lambda call=call: called(library, call) for call in (*calls, *UNUSUAL)]
    compare(screened, run, at_least=80)


def compare(
    screened: Screened, runs: list[Callable[[], tuple[Finding, ...]]], *, at_least: int
) -> None:
    screened.from_groups(sys.maxsize)
    alone = [run() for run in runs]
    screened.from_groups(1)
    assert [run() for run in runs] == alone
    assert screened.count >= at_least


def reported(bad: BadKernel) -> tuple[Finding, ...]:
    return run_checked(bad).findings


def called(library: anymetal.ShaderLibrary, call: Call) -> tuple[Finding, ...]:
    torch.manual_seed(0)
    options = dict(call.options)
    with anymetal.check(outputs=options.pop("outputs", None)) as report:
        getattr(library, call.kernel)(*call.make(), **options)
    return report.findings


@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize("kernel", ["vectors", "doubled"])
def test_cells_fit_any_slice(
    library: anymetal.ShaderLibrary, screened: Screened, offset: int, kernel: str
) -> None:
    """Cells for vectors only where all of them are whole: not at the end of 4 n + 2 floats."""
    screened.from_groups(GROUPS)
    x, y = torch.randn(THREADS + 4), torch.zeros(THREADS + 4)
    end = THREADS - 2 + offset
    with anymetal.check() as report:
        getattr(library, kernel)(
            x[offset:end], y[offset:end], THREADS - 2, threads=THREADS, group_size=SIZE
        )
    kinds = {finding.kind for finding in report}
    if kernel == "doubled":
        assert kinds == {"out_of_bounds"}
    else:
        assert kinds == {"unwritten_output"} | ({"misaligned"} if offset else set())
        left = next(f for f in report if f.kind == "unwritten_output")
        assert (left.index, left.count) == (THREADS - 4, 2)


def test_order_that_is_seen_is_kept(library: anymetal.ShaderLibrary, screened: Screened) -> None:
    screened.from_groups(GROUPS)
    x, y = torch.randn(THREADS), torch.zeros(THREADS)
    with anymetal.check() as report:
        library.numbered(x, y, torch.zeros(1, dtype=torch.int32), threads=THREADS, group_size=SIZE)
    assert not report.findings
    assert torch.equal(x, y)
    assert screened.count == 0


def test_endless_threadgroup_is_stopped(
    library: anymetal.ShaderLibrary, screened: Screened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYMETAL_TIME_LIMIT", "0.3")
    screened.from_groups(GROUPS)
    with anymetal.check() as report:
        library.endless(torch.zeros(1, dtype=torch.int32), threads=THREADS, group_size=SIZE)
    assert [finding.kind for finding in report] == ["timeout"]
    assert screened.count == 1


def test_interrupt_stops_all_workers(library: anymetal.ShaderLibrary, screened: Screened) -> None:
    screened.from_groups(GROUPS)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), anymetal.check():
        library.endless(torch.zeros(1, dtype=torch.int32), threads=THREADS, group_size=SIZE)
    assert time.monotonic() - start < 5
    timer.join()
    assert not launch(library, "doubled")[1]
