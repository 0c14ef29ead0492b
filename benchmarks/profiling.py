"""What profiling costs: profiled runs against plain ones.

    python benchmarks/profiling.py [--json FILE] [--rounds N] [--only NAME ...]

The kernels of engines.py at full size. Both run on one processor, in turn, and CPU time is taken:
a profile counts on one. Results are compared with float64. The exit status is 1 when a result was
wrong or a profiled run took more than 30 times as long.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import anymetal
from workloads import MAKERS, Workload

MOST = 30.0


@dataclass(frozen=True)
class Row:
    """One kernel: the least CPU milliseconds of each, and the larger error of both."""

    name: str
    plain: float
    profiled: float
    error: float
    tolerance: float

    @property
    def cost(self) -> float:
        return self.profiled / self.plain

    @property
    def fine(self) -> bool:
        return self.error <= self.tolerance and self.cost <= MOST


def measure(name: str, rounds: int) -> Row:
    workload = MAKERS[name]()
    library = anymetal.compile_shader(workload.source("metal"))
    kernel = getattr(library, dir(library)[0])

    def launch() -> None:
        if workload.cleared:
            workload.output.zero_()
        kernel(*arguments(workload), threads=workload.threads, group_size=workload.group_size)

    def profiled() -> None:
        with anymetal.profile():
            launch()

    errors = [_error(workload, call) for call in (launch, profiled)]
    times = [(_milliseconds(launch), _milliseconds(profiled)) for _ in range(rounds)]
    plain, counted = (min(column) for column in zip(*times, strict=True))
    return Row(name, plain, counted, max(errors), workload.tolerance)


def arguments(workload: Workload) -> list[object]:
    """As Python passes them."""
    return [a if isinstance(a, torch.Tensor) else a.item() for a in workload.arguments]


def _error(workload: Workload, call: Callable[[], None]) -> float:
    workload.spoil()
    call()
    return workload.error(workload.output)


def _milliseconds(call: Callable[[], None]) -> float:
    start = time.process_time()
    call()
    return 1e3 * (time.process_time() - start)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(MAKERS), default=list(MAKERS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(name, options.rounds) for name in options.only]
    shown = Table("kernel", "plain ms", "profiled ms", "times", "error")
    for row in rows:
        cells = (f"{row.plain:.1f}", f"{row.profiled:.1f}", f"{row.cost:.1f}", f"{row.error:.1e}")
        shown.add_row(row.name, *cells, style="" if row.fine else "red")
    Console().print(shown)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    return 0 if all(row.fine for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
