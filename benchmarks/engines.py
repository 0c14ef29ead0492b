"""anymetal's engines against torch on the CPU, PoCL and hand-written C; compile times; a launch.

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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import startup
import tables
from anymetal.evidence.timing import LONG, Times
from anymetal.evidence.timing import measure as measure_times
from contenders import (
    COROUTINE,
    INSTALL_POCL,
    POCL_BUILDS,
    SIMDGROUP,
    Contender,
    Pocl,
    compile_call,
    engine_names,
    find_pocl,
    hand_written,
    on_engine,
    torch_cpu,
)
from workloads import MAKERS, Workload

FAST = "fast math"
TORCH = "torch CPU"
WRITTEN = "C by hand"
ENGINES = engine_names()
CONTENDERS = (*ENGINES, FAST, TORCH, *POCL_BUILDS, WRITTEN)
# The kernels the coroutine engine's goals are about.
REFERENCE_KERNELS = ("silu", "rmsnorm", "matmul", "attention")
# The simdgroup engine's time over that of C by hand.
AGAINST_C = {"attention": 2, "simdgroup_matmul": 2, "int4_matvec": 1.5, "matmul": 1.5}
AGAINST_C_ELSEWHERE = 1.3


@dataclass(frozen=True)
class Row:
    """One workload: times of the contenders whose results were right, errors of all."""

    name: str
    title: str
    times: dict[str, Times]
    errors: dict[str, float]
    wrong: tuple[str, ...]
    compiles: dict[str, Times] = field(default_factory=dict)

    @property
    def engine(self) -> str:
        """The engine that ratios are about: the fastest kind there is."""
        return ENGINES[-1]

    def against(self, other: str, engine: str | None = None) -> float | None:
        """The engine's time over the other's, both minima; below 1 the engine is faster."""
        engine = engine or self.engine
        if engine not in self.times or other not in self.times:
            return None
        return self.times[engine].minimum / self.times[other].minimum

    def against_pocl(self, engine: str | None = None) -> float | None:
        """Against the faster of PoCL's builds."""
        ratios = [self.against(name, engine) for name in POCL_BUILDS]
        return max((ratio for ratio in ratios if ratio is not None), default=None)

    def against_torch(self, engine: str | None = None) -> float | None:
        return self.against(TORCH, engine)

    def compile_ratio(self) -> float | None:
        """The simdgroup engine's compile time over the coroutine engine's."""
        if SIMDGROUP not in self.compiles:
            return None
        return self.compiles[SIMDGROUP].minimum / self.compiles[COROUTINE].minimum


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
        goals = [*self.compile_goals(), *self.speed_goals()]
        return [*goals, *self.simdgroup_goals()] if SIMDGROUP in ENGINES else goals

    def compile_goals(self) -> list[Goal]:
        if self.compiles is None:
            return []
        cold = "cold compile of a small kernel"
        return [
            Goal(f"{cold}, empty cache", 700, "ms", self.compiles.empty_cache.p50 / 1e3),
            Goal(f"{cold}, headers precompiled", 1000, "ms", self.compiles.new_kernel.p50 / 1e3),
            Goal("warm compile from the disk cache", 20, "ms", self.compiles.disk_cache.p50 / 1e3),
            *(
                Goal(f"first product by tiles of 64 x 64, {kind}", 1500, "ms", times.p50 / 1e3)
                for kind, times in self.compiles.tiles.items()
            ),
            Goal("launch of 256 threads from Python", 6, "us", self.launch["anymetal"].p50),
        ]

    def speed_goals(self) -> list[Goal]:
        """The coroutine engine: every kernel at most 4x PoCL, all but one of four at most 2x."""
        rows = [row for row in self.rows if row.name in REFERENCE_KERNELS]
        ratios = [row.against_pocl(COROUTINE) for row in rows]
        known = sorted(ratio for ratio in ratios if ratio is not None)
        complete = len(known) == len(REFERENCE_KERNELS)
        return [
            Goal("coroutine, slowest kernel against PoCL", 4, "x", known[-1] if complete else None),
            Goal("coroutine, second slowest", 2, "x", known[-2] if complete else None),
        ]

    def simdgroup_goals(self) -> list[Goal]:
        """Faster than PoCL by 1.3 wherever PoCL can run; torch where it has kernels of its own."""
        against_pocl = [row.against_pocl(SIMDGROUP) for row in self.rows]
        known = [ratio for ratio in against_pocl if ratio is not None]
        compiles = [row.compile_ratio() for row in self.rows]
        longest = [ratio for ratio in compiles if ratio is not None]
        torch_limits = {
            "silu": 1 / 1.5,
            "rmsnorm": 1 / 1.5,
            "layernorm": 1,
            "softmax": 1,
            "simdgroup_matmul": 2,
        }
        return [
            Goal("simdgroup, slowest against PoCL", 1 / 1.3, "x", max(known, default=None)),
            *(
                Goal(f"simdgroup, {name} against torch", limit, "x", self.ratio_of(name, TORCH))
                for name, limit in torch_limits.items()
            ),
            *(
                Goal(
                    f"simdgroup, {row.name} against C",
                    AGAINST_C.get(row.name, AGAINST_C_ELSEWHERE),
                    "x",
                    row.against(WRITTEN, SIMDGROUP),
                )
                for row in self.rows
            ),
            Goal("simdgroup, compile against coroutine", 3, "x", max(longest, default=None)),
        ]

    def ratio_of(self, name: str, other: str) -> float | None:
        return next((row.against(other, SIMDGROUP) for row in self.rows if row.name == name), None)


def contenders_for(workload: Workload, pocl: Pocl | None) -> dict[str, Contender]:
    """All that can run the workload; kernels without a twin in OpenCL or C have none of it."""
    contenders = {engine: on_engine(workload, engine) for engine in ENGINES}
    contenders[FAST] = on_engine(workload, ENGINES[-1], fast_math=True)
    contenders[TORCH] = torch_cpu(workload)
    if pocl is not None and workload.path("cl").exists():
        for name, options in POCL_BUILDS.items():
            contenders[name] = pocl.contender(workload, options)
    if workload.path("c").exists():
        contenders[WRITTEN] = hand_written(workload)
    return contenders


def measure_workload(workload: Workload, pocl: Pocl | None, rounds: int, seconds: float) -> Row:
    contenders = contenders_for(workload, pocl)
    errors = check_all(workload, contenders)
    right = {n: c for n, c in contenders.items() if errors[n] <= workload.tolerance}
    calls = {n: c.call for n, c in right.items()}
    times = measure_times(calls, rounds=rounds, seconds=seconds, **LONG)
    # Once more after the timing: a race may let the first run pass.
    for name, error in check_all(workload, right).items():
        errors[name] = max(errors[name], error)
    wrong = tuple(n for n, error in errors.items() if error > workload.tolerance)
    times = {n: t for n, t in times.items() if n not in wrong}
    compile_calls = {e: compile_call(workload, e) for e in ENGINES}
    compiles = measure_times(compile_calls, rounds=3, seconds=seconds, **LONG)
    return Row(workload.name, workload.title, times, errors, wrong, compiles)


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


def as_json(results: Results) -> dict[str, Any]:
    compiles = results.compiles
    return {
        "machine": results.machine,
        "pocl": results.pocl,
        "kernels": [row_as_json(row) for row in results.rows],
        "compile_microseconds": None if compiles is None else asdict(compiles),
        "launch_microseconds": {n: asdict(t) for n, t in results.launch.items()},
        "goals": [{**vars(goal), "met": goal.met} for goal in results.goals()],
    }


def row_as_json(row: Row) -> dict[str, Any]:
    return {
        "kernel": row.name,
        "microseconds": {n: asdict(t) for n, t in row.times.items()},
        "errors": row.errors,
        "wrong": list(row.wrong),
        "engine": row.engine,
        "against_torch": row.against_torch(),
        "against_pocl": row.against_pocl(),
        "against_c": row.against(WRITTEN),
        "compile_microseconds": {n: asdict(t) for n, t in row.compiles.items()},
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
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
    console = Console(width=None if os.isatty(1) else 160)
    results = measure(options, console)
    tables.print_all(console, results)
    if options.json:
        options.json.write_text(json.dumps(as_json(results), indent=2) + "\n")
    return 1 if any(row.wrong for row in results.rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
