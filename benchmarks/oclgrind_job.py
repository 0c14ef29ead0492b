"""Part of a workload under Oclgrind, timed at several sizes; one line of JSON for each.

    oclgrind [--data-races] python benchmarks/oclgrind_job.py NAME GROUPS...

checker.py starts it. Oclgrind interprets, and a whole workload would take minutes to hours: only
the first GROUPS work groups run, over the whole workload's data, and what they wrote is compared
with float64.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from anymetal.evidence.judge import relative_error
from anymetal.evidence.timing import measure
from workloads import MAKERS, Workload

OPTIONS = ["-cl-mad-enable"]
LEAST_ROUNDS, MOST_ROUNDS, SECONDS = 2, 5, 20.0


def first_groups(workload: Workload, groups: int) -> tuple[int, ...]:
    """The grid that holds the first so many work groups."""
    whole = [t // s for t, s in zip(workload.threads, workload.group_size, strict=True)]
    columns = min(groups, whole[0])
    counts = [columns, *([math.ceil(groups / columns)] if len(whole) > 1 else [])]
    return tuple(c * s for c, s in zip(counts, workload.group_size, strict=True))


def work(workload: Workload, threads: tuple[int, ...]) -> int:
    """Work of a grid, in units that take equally long: threads, or keys looked at by attention."""
    if workload.name != "attention":
        return math.prod(threads)
    lengths = workload.arguments[4]
    assert isinstance(lengths, torch.Tensor)
    size = workload.group_size[0]
    rows = lengths[: threads[0] // size]
    return int(((rows + size - 1) // size * size).sum())


@dataclass(frozen=True)
class Run:
    """One launch, ready to be called again and again."""

    queue: Any
    kernel: Any
    grid: tuple[int, ...]
    group_size: tuple[int, ...]
    bound: list[Any]
    output: Any

    def __call__(self) -> None:
        self.kernel(self.queue, self.grid, self.group_size, *self.bound)
        self.queue.finish()


class Oclgrind:
    """The Oclgrind platform; the process must have been started through `oclgrind`."""

    def __init__(self) -> None:
        self.opencl: Any = importlib.import_module("pyopencl")
        platforms = [p for p in self.opencl.get_platforms() if p.name == "Oclgrind"]
        if not platforms:
            raise LookupError("not under Oclgrind: start this file through `oclgrind`")
        self.context = self.opencl.Context(platforms[0].get_devices()[:1])
        self.queue = self.opencl.CommandQueue(self.context)

    def measure(self, workload: Workload, groups: list[int]) -> None:
        """Sizes take turns, so that a noisy minute does not hit one of them alone."""
        program = self.opencl.Program(self.context, workload.source("cl")).build(OPTIONS)
        kernel = self.opencl.Kernel(program, workload.name)
        expected = workload.reference()
        grids = {count: first_groups(workload, count) for count in groups}
        runs = {count: self.call(workload, kernel, grid) for count, grid in grids.items()}
        times = measure(
            runs, rounds=MOST_ROUNDS, seconds=SECONDS, least_rounds=LEAST_ROUNDS, warm_up=0
        )
        for count, run in runs.items():
            row = {
                "groups": count,
                "work": work(workload, grids[count]),
                "milliseconds": times[count].minimum / 1e3,
                "error": error_where_written(self.result(workload, run), expected),
            }
            print(json.dumps(row), flush=True)

    def call(self, workload: Workload, kernel: Any, grid: tuple[int, ...]) -> Run:
        """A launch over a fresh output full of NaN, with buffers of its own."""
        workload.output.fill_(float("nan"))
        bound = [self.bound(argument) for argument in workload.arguments]
        output = bound[[a is workload.output for a in workload.arguments].index(True)]
        return Run(self.queue, kernel, grid, workload.group_size, bound, output)

    def result(self, workload: Workload, run: Run) -> torch.Tensor:
        self.opencl.enqueue_copy(self.queue, workload.output.numpy(), run.output)
        return workload.output

    def bound(self, argument: torch.Tensor | np.generic) -> Any:
        if not isinstance(argument, torch.Tensor):
            return argument
        flags = self.opencl.mem_flags
        return self.opencl.Buffer(
            self.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=argument.numpy()
        )


def error_where_written(result: torch.Tensor, expected: torch.Tensor) -> float:
    written = ~result.isnan()
    if not written.any():
        return math.inf
    return relative_error(result[written], expected[written])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=list(MAKERS))
    parser.add_argument("groups", type=int, nargs="+")
    options = parser.parse_args()
    torch.manual_seed(0)
    Oclgrind().measure(MAKERS[options.name](), options.groups)


if __name__ == "__main__":
    main()
