"""What checking costs: checked runs against unchecked ones, and against Oclgrind.

    python benchmarks/checker.py [--json FILE] [--rounds N] [--only NAME ...] [--no-oclgrind]

Four kernels of engines.py at full size, checked and unchecked in turn, results compared with
float64, no finding allowed. Oclgrind runs the same kernels in OpenCL, each in a process of its own,
at two small sizes; its time at full size is extrapolated from the difference of the two, and marked
with ~. The exit status is 1 when a result was wrong or a finding was reported.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import anymetal
from anymetal.checker.report import Report
from anymetal.evidence.timing import LONG, Times
from anymetal.evidence.timing import measure as measure_times
from contenders import Contender, coroutine
from engines import describe_machine
from oclgrind_job import work
from tables import in_milliseconds
from workloads import MAKERS, Workload

UNCHECKED = "unchecked"
CHECKED = "checked"
OCLGRIND = "Oclgrind"
OCLGRIND_RACES = "Oclgrind --data-races"
MODES: dict[str, list[str]] = {OCLGRIND: [], OCLGRIND_RACES: ["--data-races"]}
INSTALL_OCLGRIND = (
    "Oclgrind is not installed, so its columns are missing. On Debian or Ubuntu:\n"
    "    apt-get install oclgrind && pip install pyopencl"
)
# Work groups at the two sizes, for each processor: Oclgrind runs one work group on each.
GROUPS = {"silu": (64, 512), "rmsnorm": (2, 12), "matmul": (1, 2), "attention": (1, 3)}
JOB = Path(__file__).parent / "oclgrind_job.py"


@dataclass(frozen=True)
class Extrapolated:
    """Oclgrind's time for the whole workload, and the two runs it was worked out from."""

    milliseconds: float
    runs: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class Row:
    """One kernel: times, extrapolations, the largest error and what the checker reported."""

    name: str
    title: str
    times: dict[str, Times]
    oclgrind: dict[str, Extrapolated]
    error: float
    tolerance: float
    findings: int

    @property
    def right(self) -> bool:
        return self.error <= self.tolerance and not self.findings

    def cost(self) -> float:
        """Checked time over unchecked time, both minima."""
        return self.times[CHECKED].minimum / self.times[UNCHECKED].minimum

    def faster_than(self, mode: str) -> float | None:
        if mode not in self.oclgrind:
            return None
        return self.oclgrind[mode].milliseconds * 1e3 / self.times[CHECKED].minimum


@dataclass(frozen=True)
class Goal:
    """A bound, and the worst that was measured; None when there was nothing to measure."""

    what: str
    bound: float
    at_most: bool
    measured: float | None

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured <= self.bound if self.at_most else self.measured >= self.bound


def goals(rows: list[Row]) -> list[Goal]:
    ratios = [row.faster_than(OCLGRIND_RACES) for row in rows]
    known = [ratio for ratio in ratios if ratio is not None]
    return [
        Goal("checked over unchecked, the slowest kernel", 6.4, True, max(r.cost() for r in rows)),
        Goal(
            "Oclgrind with races over checked, the least",
            500,
            False,
            min(known) if len(known) == len(rows) else None,
        ),
    ]


def checked(workload: Workload, report_to: list[Report]) -> Contender:
    """The same call inside a check; its reports are kept."""
    plain = coroutine(workload)

    def call() -> None:
        with anymetal.check() as report:
            plain.call()
        report_to.append(report)

    return Contender(call, plain.result)


def measure(name: str, rounds: int, seconds: float, oclgrind: bool) -> Row:
    workload = MAKERS[name]()
    reports: list[Report] = []
    contenders = {UNCHECKED: coroutine(workload), CHECKED: checked(workload, reports)}
    calls = {n: c.call for n, c in contenders.items()}
    times = measure_times(calls, rounds=rounds, seconds=seconds, **LONG)
    error = max(workload.error(c.run_fresh(workload)) for c in contenders.values())
    extrapolated = {}
    if oclgrind:
        extrapolated = {mode: extrapolate(workload, flags) for mode, flags in MODES.items()}
        error = max(error, *(run["error"] for e in extrapolated.values() for run in e.runs))
    findings = sum(len(report.findings) for report in reports)
    return Row(name, workload.title, times, extrapolated, error, workload.tolerance, findings)


def extrapolate(workload: Workload, flags: list[str]) -> Extrapolated:
    """Two sizes give the time of one unit of work; what a start costs falls out."""
    sizes = [str(groups * (os.cpu_count() or 1)) for groups in GROUPS[workload.name]]
    command = ["oclgrind", *flags, sys.executable, str(JOB), workload.name, *sizes]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYOPENCL_NO_CACHE": "1"},
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    runs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    small, large = runs
    unit = (large["milliseconds"] - small["milliseconds"]) / (large["work"] - small["work"])
    return Extrapolated(unit * work(workload, workload.threads), (small, large))


def kernel_table(rows: list[Row]) -> Table:
    table = Table(title="Milliseconds, minimum (median); ~ is extrapolated from two small sizes")
    table.add_column("kernel")
    headings = [UNCHECKED, CHECKED, "checked / unchecked"]
    if any(row.oclgrind for row in rows):
        headings += [OCLGRIND, "/ checked", OCLGRIND_RACES, "/ checked"]
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [row.title, *(in_milliseconds(row.times[name]) for name in (UNCHECKED, CHECKED))]
        cells.append(f"{row.cost():.1f}x")
        for mode in row.oclgrind:
            cells.append(f"~{row.oclgrind[mode].milliseconds:,.0f}")
            cells.append(f"{row.faster_than(mode):,.0f}x")
        table.add_row(*cells)
    return table


def goal_table(rows: list[Row]) -> Table:
    table = Table(title="Goals (ratios of minima)")
    for heading in ("goal", "bound", "measured", ""):
        table.add_column(heading, justify="left" if heading in ("goal", "") else "right")
    verdicts = {True: "[green]met[/green]", False: "[red]not met[/red]", None: "not measured"}
    for goal in goals(rows):
        bound = f"{'at most' if goal.at_most else 'at least'} {goal.bound:g}x"
        measured = "-" if goal.measured is None else f"{goal.measured:.1f}x"
        table.add_row(goal.what, bound, measured, verdicts[goal.met])
    return table


def as_json(rows: list[Row], machine: dict[str, Any]) -> dict[str, Any]:
    return {
        "machine": machine,
        "kernels": [
            {
                "kernel": row.name,
                "microseconds": {name: asdict(times) for name, times in row.times.items()},
                "oclgrind_extrapolated": {mode: asdict(e) for mode, e in row.oclgrind.items()},
                "checked_over_unchecked": row.cost(),
                "faster_than": {mode: row.faster_than(mode) for mode in row.oclgrind},
                "error": row.error if math.isfinite(row.error) else None,
                "findings": row.findings,
            }
            for row in rows
        ],
        "goals": [{**asdict(goal), "met": goal.met} for goal in goals(rows)],
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to FILE")
    parser.add_argument("--rounds", type=int, default=5, help="rounds a kernel (default 5)")
    parser.add_argument("--seconds", type=float, default=20, help="at most this long a kernel")
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), help="these kernels alone")
    parser.add_argument("--no-oclgrind", action="store_true", help="leave Oclgrind out")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    console = Console(width=None if os.isatty(1) else 140)
    oclgrind = not options.no_oclgrind and shutil.which("oclgrind") is not None
    if not oclgrind and not options.no_oclgrind:
        console.print(INSTALL_OCLGRIND, style="yellow", markup=False)
    machine = describe_machine()
    torch.manual_seed(0)
    rows = []
    for name in options.only or GROUPS:
        console.print(f"{name} ...", style="dim")
        rows.append(measure(name, options.rounds, options.seconds, oclgrind))
    machine["load_after"] = os.getloadavg()[0]
    console.print(kernel_table(rows))
    console.print(goal_table(rows))
    loads = f"load {machine['load_before']:.2f} before, {machine['load_after']:.2f} after"
    console.print(f"{machine['processor']}, {machine['cores']} cores, {loads}", markup=False)
    for row in rows:
        if not row.right:
            console.print(
                f"{row.name}: error {row.error:.1e}, {row.findings} findings", style="red"
            )
    if options.json:
        options.json.write_text(json.dumps(as_json(rows, machine), indent=2) + "\n")
    return 0 if all(row.right for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
