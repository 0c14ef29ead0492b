"""Results of engines.py in, tables on the screen out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from anymetal.evidence.timing import Times
    from engines import Goal, Results, Row

NOTE = (
    "Ratios are of the last engine's time, below 1 it is faster. fast math: that engine with "
    "fast_math=True. PoCL relaxed: -cl-fast-relaxed-math; the ratio to PoCL is to the faster of "
    "its two builds. C by hand: vectorised C on as many threads as torch has."
)


def print_all(console: Console, results: Results) -> None:
    console.print(workload_table(results))
    if results.launch:
        console.print(startup_table(results))
    console.print(goal_table(results.goals()))
    console.print(NOTE, markup=False)
    machine = results.machine
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, torch {machine['torch']}, "
        f"{results.pocl or 'no PoCL'}; load {machine['load_before']:.2f} before, "
        f"{machine['load_after']:.2f} after",
        markup=False,
    )


def workload_table(results: Results) -> Table:
    table = Table(title="Kernels: milliseconds, minimum (median); compile: minimum")
    table.add_column("kernel")
    names = list(dict.fromkeys(name for row in results.rows for name in (*row.times, *row.wrong)))
    engines = list(dict.fromkeys(name for row in results.rows for name in row.compiles))
    for name in names:
        table.add_column(name, justify="right")
    for heading in ("/ torch", "/ PoCL", "/ C", *(f"compile, {name}" for name in engines)):
        table.add_column(heading, justify="right")
    for row in results.rows:
        ratios = (row.against_torch(), row.against_pocl(), row.against("C by hand"))
        compiles = [f"{row.compiles[name].minimum / 1e3:.0f}" for name in engines]
        cells = [time_cell(row, name) for name in names]
        table.add_row(row.title, *cells, *(times_sign(ratio) for ratio in ratios), *compiles)
    return table


def time_cell(row: Row, name: str) -> str:
    if name in row.wrong:
        return f"[red]wrong: error {row.errors[name]:.1e}[/red]"
    if name not in row.times:
        return "-"
    return in_milliseconds(row.times[name])


def in_milliseconds(times: Times) -> str:
    return f"{times.minimum / 1e3:.1f} ({times.p50 / 1e3:.1f})"


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
            *(
                (f"first product by tiles of 64 x 64, {kind}", times)
                for kind, times in results.compiles.tiles.items()
            ),
        ):
            table.add_row(label, f"{in_milliseconds(times)} ms")
    for name, times in results.launch.items():
        label = "torch.mul of 256 floats" if "torch" in name else f"launch of 256 threads, {name}"
        table.add_row(label, f"{times.minimum:.1f} ({times.p50:.1f}) us")
    return table


def goal_table(goals: list[Goal]) -> Table:
    table = Table(title="Goals (medians; ratios of minima)")
    for heading in ("goal", "at most", "measured", ""):
        table.add_column(heading, justify="left" if heading in ("goal", "") else "right")
    verdicts = {True: "[green]met[/green]", False: "[red]not met[/red]", None: "not measured"}
    for goal in goals:
        measured = "-" if goal.measured is None else f"{goal.measured:.3g} {goal.unit}"
        table.add_row(goal.what, f"{goal.limit:.3g} {goal.unit}", measured, verdicts[goal.met])
    return table
