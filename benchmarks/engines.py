"""The coroutine engine against torch on the CPU and PoCL, compile times and the cost of a launch.

    python benchmarks/engines.py [--json FILE] [--rounds N] [--only NAME ...]

Everything in one run: contenders take turns, each result is checked against float64 before and
after it is timed, and a wrong one gets no time. The exit status is 1 when a result was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import startup
from contenders import INSTALL_POCL, POCL_BUILDS, Contender, Pocl, coroutine, find_pocl, torch_cpu
from timing import Times, interleave
from workloads import MAKERS, Workload

COROUTINE = "coroutine"
FAST = "fast math"
TORCH = "torch CPU"
CONTENDERS = (COROUTINE, FAST, TORCH, *POCL_BUILDS)


@dataclass(frozen=True)
class Row:
    """One workload: times of the contenders whose results were right, errors of all."""

    name: str
    title: str
    times: dict[str, Times]
    errors: dict[str, float]
    wrong: tuple[str, ...]

    def against_pocl(self) -> float | None:
        """Coroutine time over the faster PoCL build's, both minima."""
        pocl = [self.times[name].minimum for name in POCL_BUILDS if name in self.times]
        if not pocl or COROUTINE not in self.times:
            return None
        return self.times[COROUTINE].minimum / min(pocl)

    def against_torch(self) -> float | None:
        if TORCH not in self.times or COROUTINE not in self.times:
            return None
        return self.times[COROUTINE].minimum / self.times[TORCH].minimum


@dataclass(frozen=True)
class Goal:
    """A number to stay under, and what was measured; None when there was nothing to measure."""

    what: str
    limit: float
    unit: str
    measured: float | None

    @property
    def met(self) -> bool | None:
        return None if self.measured is None else self.measured <= self.limit


@dataclass(frozen=True)
class Results:
    """All that one run measured."""

    rows: list[Row]
    compiles: startup.Compiles | None
    launch: dict[str, Times]
    pocl: str | None
    machine: dict[str, Any] = field(default_factory=dict)

    def goals(self) -> list[Goal]:
        return [*self.compile_goals(), *self.speed_goals()]

    def compile_goals(self) -> list[Goal]:
        if self.compiles is None:
            return []
        cold = "cold compile of a small kernel"
        return [
            Goal(f"{cold}, empty cache", 1000, "ms", self.compiles.empty_cache.median),
            Goal(f"{cold}, headers precompiled", 1000, "ms", self.compiles.new_kernel.median),
            Goal("warm compile from the disk cache", 20, "ms", self.compiles.disk_cache.median),
            Goal("launch of 256 threads from Python", 30, "us", self.launch[COROUTINE].median),
        ]

    def speed_goals(self) -> list[Goal]:
        """Every kernel at most 4x PoCL, and all but one of the four at most 2x."""
        ratios = [row.against_pocl() for row in self.rows]
        known = sorted(ratio for ratio in ratios if ratio is not None)
        complete = len(known) == len(MAKERS)
        return [
            Goal("slowest kernel against PoCL", 4, "x", known[-1] if complete else None),
            Goal("second slowest against PoCL", 2, "x", known[-2] if complete else None),
        ]


def measure_workload(workload: Workload, pocl: Pocl | None, rounds: int, seconds: float) -> Row:
    contenders: dict[str, Contender] = {
        COROUTINE: coroutine(workload),
        FAST: coroutine(workload, fast_math=True),
        TORCH: torch_cpu(workload),
    }
    if pocl is not None:
        for name, options in POCL_BUILDS.items():
            contenders[name] = pocl.contender(workload, options)
    errors = check_all(workload, contenders)
    right = {n: c for n, c in contenders.items() if errors[n] <= workload.tolerance}
    times = interleave({n: c.call for n, c in right.items()}, rounds, seconds)
    # Once more after the timing: a race may let the first run pass.
    for name, error in check_all(workload, right).items():
        errors[name] = max(errors[name], error)
    wrong = tuple(n for n, error in errors.items() if error > workload.tolerance)
    times = {n: t for n, t in times.items() if n not in wrong}
    return Row(workload.name, workload.title, times, errors, wrong)


def check_all(workload: Workload, contenders: dict[str, Contender]) -> dict[str, float]:
    return {name: workload.error(c.run_fresh(workload)) for name, c in contenders.items()}


def describe_machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "unix_time": time.time(),
    }


def workload_table(results: Results) -> Table:
    table = Table(title="Kernels: milliseconds, minimum (median); ratios of the first column")
    table.add_column("kernel")
    shown = [n for n in CONTENDERS if results.pocl is not None or n not in POCL_BUILDS]
    for name in shown:
        table.add_column(name, justify="right")
    table.add_column("/ torch", justify="right")
    if results.pocl is not None:
        table.add_column("/ PoCL", justify="right")
    for row in results.rows:
        cells = [row.title, *(time_cell(row, name) for name in shown)]
        cells.append(times_sign(row.against_torch()))
        if results.pocl is not None:
            cells.append(times_sign(row.against_pocl()))
        table.add_row(*cells)
    return table


def time_cell(row: Row, name: str) -> str:
    if name in row.wrong:
        return f"[red]wrong: error {row.errors[name]:.1e}[/red]"
    times = row.times[name]
    return f"{times.minimum:.1f} ({times.median:.1f})"


def times_sign(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def startup_table(results: Results) -> Table:
    table = Table(title="Before the work: minimum (median)")
    table.add_column("step")
    table.add_column("time", justify="right")
    if results.compiles is not None:
        for label, times in (
            ("compile, empty cache: headers and runtime too", results.compiles.empty_cache),
            ("compile, headers precompiled", results.compiles.new_kernel),
            ("compile, from the disk cache", results.compiles.disk_cache),
        ):
            table.add_row(label, f"{times.minimum:.1f} ({times.median:.1f}) ms")
    for name, times in results.launch.items():
        label = "torch.mul of 256 floats" if name == TORCH else "launch of 256 threads"
        table.add_row(label, f"{times.minimum:.1f} ({times.median:.1f}) us")
    return table


def goal_table(goals: list[Goal]) -> Table:
    table = Table(title="Goals (medians; ratios of minima)")
    for heading in ("goal", "at most", "measured", ""):
        table.add_column(heading, justify="left" if heading in ("goal", "") else "right")
    verdicts = {True: "[green]met[/green]", False: "[red]not met[/red]", None: "not measured"}
    for goal in goals:
        measured = "-" if goal.measured is None else f"{goal.measured:.3g} {goal.unit}"
        table.add_row(goal.what, f"{goal.limit:g} {goal.unit}", measured, verdicts[goal.met])
    return table


def as_json(results: Results) -> dict[str, Any]:
    compiles = results.compiles
    return {
        "machine": results.machine,
        "pocl": results.pocl,
        "kernels": [
            {
                "kernel": row.name,
                "milliseconds": {n: t.to_json() for n, t in row.times.items()},
                "errors": row.errors,
                "wrong": list(row.wrong),
                "against_torch": row.against_torch(),
                "against_pocl": row.against_pocl(),
            }
            for row in results.rows
        ],
        "compile_milliseconds": None
        if compiles is None
        else {name: times.to_json() for name, times in vars(compiles).items()},
        "launch_microseconds": {n: t.to_json() for n, t in results.launch.items()},
        "goals": [{**vars(goal), "met": goal.met} for goal in results.goals()],
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to FILE")
    parser.add_argument("--rounds", type=int, default=15, help="rounds a kernel (default 15)")
    parser.add_argument("--seconds", type=float, default=10, help="at most this long a kernel")
    parser.add_argument("--only", nargs="+", choices=list(MAKERS), help="these kernels alone")
    parser.add_argument("--no-startup", action="store_true", help="leave compiles and launch out")
    return parser.parse_args()


def measure(options: argparse.Namespace, console: Console) -> Results:
    machine = describe_machine()
    torch.manual_seed(0)
    pocl = find_pocl()
    if pocl is None:
        console.print(INSTALL_POCL, style="yellow", markup=False)
    rows = []
    for name in options.only or MAKERS:
        console.print(f"{name} ...", style="dim")
        rows.append(measure_workload(MAKERS[name](), pocl, options.rounds, options.seconds))
    compiles, launch = None, {}
    if not options.no_startup:
        console.print("compiles and launches ...", style="dim")
        compiles = startup.measure_compiles(rounds=5)
        launch = startup.measure_launch(rounds=options.rounds)
    machine["load_after"] = os.getloadavg()[0]
    return Results(rows, compiles, launch, pocl.version if pocl else None, machine)


def main() -> int:
    options = parse_arguments()
    console = Console(width=None if os.isatty(1) else 120)
    results = measure(options, console)
    console.print(workload_table(results))
    if not options.no_startup:
        console.print(startup_table(results))
    console.print(goal_table(results.goals()))
    machine = results.machine
    console.print(
        "fast math: the same engine with fast_math=True. PoCL relaxed: -cl-fast-relaxed-math. "
        "The ratio to PoCL is to the faster of its two builds.",
        markup=False,
    )
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, torch {machine['torch']}, "
        f"{results.pocl or 'no PoCL'}; load {machine['load_before']:.2f} before, "
        f"{machine['load_after']:.2f} after",
        markup=False,
    )
    if options.json:
        options.json.write_text(json.dumps(as_json(results), indent=2) + "\n")
    return 1 if any(row.wrong for row in results.rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
