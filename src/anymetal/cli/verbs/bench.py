"""`anymetal bench`: time operators beside torch's own and the naive composition."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from anymetal.cli.checked_kernel import KernelCall
from anymetal.cli.files import check_writable
from anymetal.cli.kernel_options import (
    Args,
    Constants,
    Define,
    GroupSize,
    Include,
    KernelName,
    Library,
    MemorySizes,
    Seed,
    Threads,
    of_kernel,
)
from anymetal.cli.operators import (
    Device,
    Dtypes,
    Names,
    chosen_device,
    chosen_dtypes,
    chosen_operators,
    forwards,
    with_progress,
)
from anymetal.cli.screen import Json, console, finish
from anymetal.cli.sources import Options
from anymetal.cli.targets import is_own, own_target
from anymetal.evidence import history, svg
from anymetal.evidence.machine import Machine, describe, load
from anymetal.evidence.measure import (
    CONTENDERS,
    NAIVE,
    OURS,
    Effort,
    Row,
    exercises,
    measure_rows,
)
from anymetal.evidence.overriding import measure_override
from anymetal.evidence.own import Own, measure_own
from anymetal.evidence.tables import new_table
from anymetal.evidence.timing import Times, one_thread
from anymetal.ops.declare import AnyOperator
from anymetal.overrides import verdicts
from anymetal.overrides.reasons import kind_of
from anymetal.overrides.table import TABLE
from anymetal.overrides.table import Row as Override

app = typer.Typer()


@app.command()
def bench(
    operators: Names = None,
    device: Device = None,
    dtype: Dtypes = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.01, help="at most this long a row: 0.5, with --verdict 0.1"),
    ] = None,
    sizes: Annotated[
        int | None,
        typer.Option(min=0, help="shapes of each operator; 0 is all, with --verdict it is 2"),
    ] = None,
    traffic: Annotated[bool, typer.Option(help="count the bytes that kernels move")] = True,
    append_to: Annotated[
        Path | None, typer.Option("--history", metavar="FILE", help="append the rows of this run")
    ] = None,
    plot_to: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="write an SVG: time over torch's, by size"),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help="an earlier run: JSON or a history"
        ),
    ] = None,
    verdict_to: Annotated[
        Path | None,
        typer.Option(
            "--verdict",
            metavar="FILE",
            help="time torch's functions with ours behind them instead, and write which help here",
        ),
    ] = None,
    under_load: Annotated[
        bool, typer.Option(help="with --verdict: measure though the machine is busy, and say so")
    ] = False,
    as_json: Json = False,
    baseline: Annotated[
        str | None,
        of_kernel(metavar="FUNCTION", help="what it stands beside: FILE.py::NAME or torch.softmax"),
    ] = None,
    least_bytes: Annotated[
        int | None, of_kernel("--bytes", metavar="N", help="that a call must move")
    ] = None,
    flops: Annotated[int | None, of_kernel(metavar="N", help="that a call computes")] = None,
    kernel: KernelName = None,
    arg: Args = None,
    threads: Threads = None,
    group_size: GroupSize = None,
    memory: MemorySizes = None,
    constant: Constants = None,
    seed: Seed = 0,
    library: Library = None,
    include: Include = None,
    define: Define = None,
) -> None:
    """Time operators beside torch's own and the naive composition; a wrong result gets no time.

    A function of yours, FILE.py::NAME, or a kernel, FILE.metal or FILE.metallib, is timed with the
    arguments that --arg gives, beside --baseline.
    """
    check_writable(history=append_to, plot=plot_to, verdict=verdict_to)
    outputs = Outputs(append_to, plot_to, compare, as_json)
    effort = Effort(seconds or 0.5, sizes or 0, traffic)
    place = chosen_device(device)
    owned = [word for word in operators or () if is_own(word)]
    if owned:
        if len(owned) != len(operators or ()):
            raise typer.BadParameter("operators and files of yours are timed in runs of their own")
        call = KernelCall(
            file=Path(),
            options=Options.parse(include, define, library),
            kernel=kernel,
            arguments=arg or [],
            threads=threads,
            group_size=group_size,
            threadgroup_memory=memory or [],
            constants=constant or [],
            outputs=[],
            seed=seed,
        )
        chosen_own = [own_target(word, call, baseline, place) for word in owned]
        costed = [replace(one, least_bytes=least_bytes, flops=flops) for one in chosen_own]
        finish(run_own(console(), costed, place, effort, outputs))
        return
    chosen = chosen_operators(operators)
    if verdict_to:
        judging = Effort(seconds or 0.1, 2 if sizes is None else sizes)
        finish(
            judge_overrides(console(), chosen, place, dtype, judging, verdict_to, anyway=under_load)
        )
        return
    finish(run(console(), chosen, place, dtype, effort, outputs))


@dataclass(frozen=True)
class Outputs:
    """What to do with the rows besides showing them."""

    history: Path | None = None
    plot: Path | None = None
    compare: Path | None = None
    json: bool = False


def run(
    console: Console,
    operators: Sequence[AnyOperator],
    device: torch.device,
    dtypes: list[str] | None,
    effort: Effort,
    outputs: Outputs,
) -> bool:
    """Measure; False when a result is wrong or, against an earlier run, a row became slower."""
    earlier = _earlier(outputs.compare)
    busy = load()
    wanted = chosen_dtypes(dtypes)
    planned = [
        exercise
        for operator in forwards(operators)
        for exercise in exercises(operator, wanted, device, effort.sizes)
    ]
    rows: list[Row] = []
    for exercise, _ in with_progress(console, planned, lambda e: e.label, quiet=outputs.json):
        rows += measure_rows(exercise, effort)
    return _publish(console, rows, device, busy, earlier, outputs)


def run_own(
    console: Console,
    chosen: Sequence[Own],
    device: torch.device,
    effort: Effort,
    outputs: Outputs,
) -> bool:
    """The same for functions and kernels of the user's."""
    earlier = _earlier(outputs.compare)
    busy = load()
    rows = [measure_own(own, device, effort.seconds, count=effort.traffic) for own in chosen]
    return _publish(console, rows, device, busy, earlier, outputs)


def _publish(
    console: Console,
    rows: Sequence[Row],
    device: torch.device,
    busy: float,
    earlier: dict[history.Key, Times],
    outputs: Outputs,
) -> bool:
    """Write and show the rows; whether all are right, and none slower than before."""
    machine = describe(device)
    if outputs.history:
        history.append(outputs.history, rows, machine)
    if outputs.plot:
        outputs.plot.write_text(plot(rows, machine))
    if outputs.json:
        print(json.dumps(history.as_json(rows, machine), indent=2))
    else:
        console.print(f"{machine}; load {busy:.1f}", style="dim", markup=False, highlight=False)
        console.print(table(rows))
        console.print(_notes(device), style="dim", highlight=False)
    found = history.changes(rows, earlier)
    if outputs.compare and not outputs.json:
        console.print(changes_table(found, outputs.compare))
    slower = any(change.verdict == "slower" for change in found)
    return bool(rows) and all(row.right for row in rows) and not slower


def judge_overrides(
    console: Console,
    operators: Sequence[AnyOperator],
    device: torch.device,
    dtypes: list[str] | None,
    effort: Effort,
    path: Path,
    *,
    anyway: bool = False,
) -> bool:
    """Time torch's functions with and without ours; the file has each verdict when it is known."""
    busy, cores = load(), os.cpu_count() or 1
    if busy > cores / 2 and not anyway:
        console.print(
            f"load {busy:.1f} on {cores} cores: verdicts need a quiet machine, or --under-load",
            style="red",
        )
        return False
    names = {operator.name for operator in operators}
    rows = [row for row in TABLE.rows if names & set(row.operators)]
    with one_thread():
        wrong = _judge(console, rows, device, dtypes, effort, path, busy)
    return not wrong


def _judge(
    console: Console,
    rows: Sequence[Override],
    device: torch.device,
    dtypes: list[str] | None,
    effort: Effort,
    path: Path,
    busy: float,
) -> list[str]:
    """Measures and writes; gives the functions with a wrong result."""
    machine = {**describe(device).to_json(), "load": round(busy, 2)}
    date = time.strftime("%Y-%m-%d", time.gmtime())
    ratios: dict[str, list[float]] = {}
    elements: dict[str, list[int]] = {}
    wrong: list[str] = []
    for row, show in with_progress(console, rows, lambda row: row.name, quiet=False):
        found = list(measure_override(row, device, chosen_dtypes(dtypes), effort))
        if found:
            ratios[row.name] = [one.ratio for one in found]
            elements[row.name] = [one.elements for one in found]
        wrong += [row.name] if not all(one.right for one in found) else []
        written = verdicts.write(path, kind_of(device), machine, date, ratios, wrong, elements)
        show(_verdict(row.name, written[row.name], row.name in wrong))
    return wrong


def _verdict(name: str, verdict: verdicts.Verdict, is_wrong: bool) -> Text:
    if verdict.mean is None:
        return Text(f"{name}: {verdict.verdict}", "dim")
    words = f"{name}: {verdict.verdict}, ours/torch {verdict.mean} (worst {verdict.worst})"
    words += f" in {verdict.measured} calls"
    words += f" from {verdict.least} elements on" if verdict.least else ""
    words += ", a wrong result" if is_wrong else ""
    return Text(words, "green" if verdict.verdict == verdicts.OURS else "")


def _earlier(path: Path | None) -> dict[history.Key, Times]:
    try:
        return history.read_times(path) if path else {}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def table(rows: Sequence[Row]) -> Table:
    """A row in few columns of two and three lines, so that 80 characters hold all of it."""
    naive = any(NAIVE in row.judgements for row in rows)
    contenders = [name for name in CONTENDERS if naive or name != NAIVE]
    shown = new_table(
        "operator dtype shape pass\nvariant, threads/threadgroup",
        right=(
            *(f"{name} µs\n95 %" for name in contenders),
            "ours/torch\nverdict",
            "GB/s\nGFLOP/s\ntraffic",
            "error\ntorch's\nlaunches",
        ),
    )
    for row in rows:
        shown.add_row(*_cells(row, contenders), end_section=True)
    return shown


def changes_table(found: Sequence[history.Change], path: Path) -> Table:
    """This run beside an earlier one."""
    right = ("then µs\n95 %", "now µs\n95 %", "now/then")
    shown = new_table("operator dtype shape pass", right=right, last="")
    shown.title = f"against {path}"
    styles = {"slower": "red", "faster": "green", "same": ""}
    for change in found:
        shown.add_row(
            " ".join(change.key),
            _time(change.before),
            _time(change.now),
            f"{change.ratio:.2f}",
            Text(change.verdict, styles[change.verdict]),
        )
    return shown


def plot(rows: Sequence[Row], machine: Machine) -> str:
    """Our time over torch's by the size of the largest tensor, a line an operator and dtype."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.ratio is not None and row.elements:
            name = f"{row.operator} {row.dtype} {row.direction}"
            series.setdefault(name, []).append((row.elements, row.ratio))
    if not series:
        raise ValueError("nothing to plot: no row has a time beside torch's")
    title = f"time over torch's, below 1 is faster: {machine.device}, {machine.engine} engine"
    across = "elements of the largest tensor"
    return svg.lines(title, series, across=across, up="our time / torch's")


def _cells(row: Row, contenders: Sequence[str]) -> list[str | Text]:
    name = Text(f"{row.operator} {row.dtype} {row.case} {row.direction}\n")
    name.append(f"{row.variant}, {row.launch}", "dim")
    verdict = Text("-" if row.ratio is None else f"{row.ratio:.2f}")
    style = {"wrong": "bold red", "use ours": "green"}.get(row.verdict, "")
    verdict.append(f"\n{row.verdict}", style)
    ours = row.judgements.get(OURS)
    errors = ("-", "-") if ours is None else (f"{ours.error:.1e}", f"{ours.torch_error:.1e}")
    return [
        name,
        *(_contender(row, name) for name in contenders),
        verdict,
        "\n".join(
            [
                _or_dash(row.gigabytes_per_second, ".1f"),
                _or_dash(row.gigaflops, ".1f"),
                _or_dash(row.traffic, ".2f"),
            ]
        ),
        "\n".join([*errors, _or_dash(row.launches, "d")]),
    ]


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _contender(row: Row, name: str) -> str | Text:
    if name in row.times:
        return _time(row.times[name])
    if name not in row.judgements:
        return "-"
    return Text("wrong" if name == OURS else f"error\n{row.judgements[name].error:.0e}", "red")


def _time(times: Times) -> str:
    """The median, and below it how far the interval reaches to both sides, in per cent."""
    below, above = (
        100 * (end / times.p50 - 1) if times.p50 else 0 for end in (times.low, times.high)
    )
    return f"{_number(times.p50)}\n{below:+.0f} {above:+.0f}"


def _number(microseconds: float) -> str:
    return f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:.0f}"


def _notes(device: torch.device) -> str:
    engine = (
        "Kernels ran on the CPU engine: these times say nothing about a GPU. "
        if describe(device).engine == "cpu"
        else ""
    )
    return (
        f"{engine}Medians with 95 % intervals. Errors are against float64; a wrong result has"
        " no time. traffic: bytes the kernels ask for over the least possible."
    )
