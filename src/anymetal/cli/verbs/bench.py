"""`anymetal bench`: time operators beside torch's own and the naive composition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from anymetal.cli.bench_tables import changes_table, plot, table
from anymetal.cli.checked_kernel import KernelCall
from anymetal.cli.files import check_writable
from anymetal.cli.kernel_options import of_kernel, takes_kernel_options
from anymetal.cli.operators import (
    Device,
    Dtypes,
    Names,
    chosen_device,
    chosen_dtypes,
    chosen_operators,
    with_progress,
)
from anymetal.cli.screen import Json, console, finish
from anymetal.cli.targets import is_own, own_target
from anymetal.cli.verdicts import judge_overrides
from anymetal.evidence import history
from anymetal.evidence.machine import describe, load
from anymetal.evidence.measure import Effort, Row, exercises, forwards, measure_rows
from anymetal.evidence.own import Own, measure_own
from anymetal.evidence.timing import Times
from anymetal.ops.declare import AnyOperator

app = typer.Typer()

_SECONDS = typer.Option(min=0.01, help="at most this long a row: 0.5, with --verdict 0.1")
_SIZES = typer.Option(min=0, help="shapes of each operator; 0 is all, with --verdict it is 2")
_TRAFFIC = typer.Option(help="count the bytes that kernels move")
_HISTORY = typer.Option("--history", metavar="FILE", help="append the rows of this run")
_PLOT = typer.Option("--plot", metavar="FILE", help="write an SVG: time over torch's, by size")
_COMPARE = typer.Option(
    metavar="FILE", exists=True, dir_okay=False, help="an earlier run: JSON or a history"
)
_VERDICT = typer.Option(
    "--verdict",
    metavar="FILE",
    help="time torch's functions with ours behind them instead, and write which help here",
)
_UNDER_LOAD = typer.Option(help="with --verdict: measure though the machine is busy, and say so")
_BASELINE = of_kernel(
    metavar="FUNCTION", help="what it stands beside: FILE.py::NAME or torch.softmax"
)
_BYTES = of_kernel("--bytes", metavar="N", help="that a call must move")
_FLOPS = of_kernel(metavar="N", help="that a call computes")


@app.command()
@takes_kernel_options("output")
def bench(
    operators: Names = None,
    device: Device = None,
    dtype: Dtypes = None,
    seconds: Annotated[float | None, _SECONDS] = None,
    sizes: Annotated[int | None, _SIZES] = None,
    traffic: Annotated[bool, _TRAFFIC] = True,
    append_to: Annotated[Path | None, _HISTORY] = None,
    plot_to: Annotated[Path | None, _PLOT] = None,
    compare: Annotated[Path | None, _COMPARE] = None,
    verdict_to: Annotated[Path | None, _VERDICT] = None,
    under_load: Annotated[bool, _UNDER_LOAD] = False,
    as_json: Json = False,
    baseline: Annotated[str | None, _BASELINE] = None,
    least_bytes: Annotated[int | None, _BYTES] = None,
    flops: Annotated[int | None, _FLOPS] = None,
    *,
    call: KernelCall,
) -> None:
    """Time operators beside torch's own and the naive composition; a wrong result gets no time.

    A function of yours, FILE.py::NAME, or a kernel, FILE.metal or FILE.metallib, is timed with the
    arguments that --arg gives, beside --baseline.
    """
    check_writable(history=append_to, plot=plot_to, verdict=verdict_to)
    place = chosen_device(device)
    if verdict_to and not any(map(is_own, operators or ())):
        judging = Effort(seconds or 0.1, 2 if sizes is None else sizes)
        chosen = chosen_operators(operators)
        finish(
            judge_overrides(console(), chosen, place, dtype, judging, verdict_to, anyway=under_load)
        )
        return
    outputs = Outputs(append_to, plot_to, compare, as_json)
    effort = Effort(seconds or 0.5, sizes or 0, traffic)
    owned = _owned(operators or [], call, baseline, place)
    if owned:
        costed = [replace(one, least_bytes=least_bytes, flops=flops) for one in owned]
        finish(run_own(console(), costed, place, effort, outputs))
        return
    finish(run(console(), chosen_operators(operators), place, dtype, effort, outputs))


def _owned(
    words: Sequence[str], call: KernelCall, baseline: str | None, device: torch.device
) -> list[Own]:
    """The functions and kernels of the user's that are named: all of the words, or none."""
    owned = [word for word in words if is_own(word)]
    if owned and len(owned) != len(words):
        raise typer.BadParameter("operators and files of yours are timed in runs of their own")
    return [own_target(word, call, baseline, device) for word in owned]


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


def _earlier(path: Path | None) -> dict[history.Key, Times]:
    try:
        return history.read_times(path) if path else {}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


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
