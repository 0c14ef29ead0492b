"""anymetal.linalg beside torch.linalg on the CPU: `python benchmarks/linalg.py [--json FILE]`.

Ratios of minima, with the two taking turns in one run; launches are those of one call of ours.
`--one-thread` takes processor time of one thread each, which other work on the machine does not
change much.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from anymetal import linalg
from anymetal.evidence.machine import describe
from anymetal.evidence.timing import LONG, measure
from anymetal.launch.guarded import watched

# At most this many times torch's time, by the size of the matrices.
SMALL_GOALS = {"cholesky": 1.0, "solve": 1.0, "qr": 1.0, "eigh": 3.0, "svd": 3.0}
LARGE_GOALS = {"cholesky": 15.0, "lu_factor": 15.0, "qr": 15.0, "eigh": 40.0, "svd": 40.0}
BATCH = 1000


@dataclass(frozen=True)
class Row:
    """One function at one shape: minima in milliseconds."""

    function: str
    shape: tuple[int, ...]
    ours: float
    torchs: float
    launches: int
    goal: float

    @property
    def ratio(self) -> float:
        return self.ours / self.torchs


def matrices(function: str, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(shape[-1])
    a = torch.randn(*shape, generator=generator)
    if function == "cholesky":
        return (a @ a.mT + shape[-1] * torch.eye(shape[-1]),)
    if function == "eigh":
        return (a + a.mT,)
    if function == "solve":
        return a, torch.randn(*shape[:-1], 1, generator=generator)
    return (a,)


def processor_time(call: Callable[[], object], least: float = 2e-3) -> float:
    """Milliseconds of processor time of a call, which is repeated to fill `least` seconds."""
    started, calls = time.process_time(), 0
    while calls == 0 or time.process_time() - started < least:
        call()
        calls += 1
    return (time.process_time() - started) / calls * 1e3


def minima(
    contenders: dict[str, Callable[[], object]], rounds: int, one_thread: bool
) -> tuple[float, float]:
    """Milliseconds of ours and of torch."""
    if not one_thread:
        times = measure(contenders, rounds=rounds, **LONG)
        return times["ours"].minimum / 1e3, times["torch"].minimum / 1e3
    samples = [[processor_time(call) for call in contenders.values()] for _ in range(rounds + 1)]
    ours, torchs = (min(column) for column in zip(*samples[1:], strict=True))
    return ours, torchs


def timed(function: str, shape: tuple[int, ...], goal: float, rounds: int, one_thread: bool) -> Row:
    args = matrices(function, shape)
    ours: Callable[..., object] = getattr(linalg, function)
    theirs: Callable[..., object] = getattr(torch.linalg, function)
    with watched() as launches:
        ours(*args)
    contenders = {"ours": lambda: ours(*args), "torch": lambda: theirs(*args)}
    return Row(function, shape, *minima(contenders, rounds, one_thread), len(launches), goal)


def rows(sizes: list[int], large: list[int], rounds: int, one_thread: bool) -> Iterator[Row]:
    for size in sizes:
        for function, goal in SMALL_GOALS.items():
            yield timed(function, (BATCH, size, size), goal, rounds, one_thread)
    for size in large:
        for function, goal in LARGE_GOALS.items():
            yield timed(function, (size, size), goal, max(3, rounds // 3), one_thread)


def table(found: list[Row]) -> Table:
    result = Table(title="milliseconds, minimum")
    for heading in ("function", "shape", "ours", "torch CPU", "ratio", "goal", "launches"):
        result.add_column(heading, justify="right")
    for row in found:
        shape = "x".join(str(size) for size in row.shape)
        mark = "" if row.ratio <= row.goal else " missed"
        numbers = (f"{row.ours:.2f}", f"{row.torchs:.2f}", f"{row.ratio:.2f}{mark}")
        result.add_row(row.function, shape, *numbers, f"{row.goal:.0f}", str(row.launches))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="*", type=int, default=[8, 16, 32])
    parser.add_argument("--large", nargs="*", type=int, default=[512])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--one-thread", action="store_true", help="processor time of one thread")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.one_thread:
        torch.set_num_threads(1)
    found = list(rows(options.sizes, options.large, options.rounds, options.one_thread))
    Console().print(table(found))
    if options.json:
        machine = asdict(describe(torch.device("cpu")))
        listed = [{**asdict(row), "ratio": row.ratio} for row in found]
        options.json.write_text(json.dumps({"machine": machine, "rows": listed}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
