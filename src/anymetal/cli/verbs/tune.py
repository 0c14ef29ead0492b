"""`anymetal tune`: find the best launch shapes on this machine and keep them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from anymetal.cli.checked_kernel import KernelCall
from anymetal.cli.files import check_writable
from anymetal.cli.kernel_options import takes_kernel_options
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
from anymetal.cli.targets import is_own
from anymetal.cli.tuned_kernel import show_kept, tune_kernel
from anymetal.evidence.machine import Machine, describe
from anymetal.evidence.measure import forwards
from anymetal.evidence.sweep import Subject, exported, sweep
from anymetal.evidence.tables import new_table
from anymetal.evidence.timing import synchroniser
from anymetal.evidence.tuning import subjects
from anymetal.ops.declare import AnyOperator
from anymetal.policy.policy import Question, untuned, user_file
from anymetal.policy.tuning_cache import Trial, Tuned, keep, read

Result = tuple[Question, Tuned]
app = typer.Typer()


@app.command()
@takes_kernel_options("group_size", "output", "library")
def tune(
    operators: Names = None,
    device: Device = None,
    dtype: Dtypes = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="at most this long a candidate")] = 0.1,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the best values as a policy file")
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="stop then, or at Ctrl-C, with what there is"),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="measure what the cache has already")
    ] = False,
    list_kept: Annotated[
        bool, typer.Option("--list", help="show what is kept on this machine, and measure nothing")
    ] = False,
    as_json: Json = False,
    *,
    call: KernelCall,
) -> None:
    """Find the best launch shapes on this machine and keep them; they hold for it alone.

    A kernel of yours, FILE.metal, is tried with all group sizes that its grid may have.
    """
    check_writable(export=export)
    if list_kept:
        show_kept(console(), as_json)
        return
    if operators and any(is_own(word) for word in operators):
        if len(operators) != 1 or Path(operators[0]).suffix != ".metal":
            raise typer.BadParameter("one FILE.metal at a time; functions use @anymetal.autotune")
        call = replace(call, file=Path(operators[0]))
        finish(tune_kernel(console(), call, chosen_device(device), seconds, again, as_json))
        return
    outputs = Outputs(export, again, as_json, limit)
    chosen = chosen_operators(operators)
    finish(run(console(), chosen, chosen_device(device), dtype, seconds, outputs))


@dataclass(frozen=True)
class Outputs:
    """Where the best values go besides the cache, whether to measure what it has, and how long."""

    export: Path | None = None
    again: bool = False
    json: bool = False
    limit: float | None = None  # seconds


def run(
    console: Console,
    operators: Sequence[AnyOperator],
    device: torch.device,
    dtypes: list[str] | None,
    seconds: float,
    outputs: Outputs,
) -> bool:
    """Tune; False when there was nothing to tune or a question has no candidate that works."""
    started = time.monotonic()
    machine = describe(device)
    if not outputs.json:
        console.print(f"{machine}\n{label(machine)}", style="dim", markup=False, highlight=False)
    with untuned():
        found = subjects(forwards(operators), chosen_dtypes(dtypes), device)
        results = _tuned(console, found, Turn(device, seconds, started), outputs)
    if len(results) < len(found) and not outputs.json:
        console.print(f"Stopped after {len(results)} of {len(found)} questions.")
    if outputs.export is not None:
        title = f"Launch shapes tuned on {machine}. {label(machine)}"
        outputs.export.write_text(exported(results, title))
    if outputs.json:
        print(json.dumps({"machine": machine.to_json(), "rows": _json(results)}, indent=2))
    else:
        console.print(table(results))
        console.print(_where(outputs.export), style="dim", markup=False, highlight=False)
    return bool(results) and all(tuned.best is not None for _, tuned in results)


@dataclass(frozen=True)
class Turn:
    """Where and how long a candidate is timed, and when all of it began."""

    device: torch.device
    seconds: float
    started: float

    def is_over(self, limit: float | None) -> bool:
        return limit is not None and time.monotonic() - self.started > limit


def _tuned(
    console: Console, found: Sequence[Subject], turn: Turn, outputs: Outputs
) -> list[Result]:
    """The results up to the limit, or up to Ctrl-C; each is kept at once."""
    results: list[Result] = []
    with contextlib.suppress(KeyboardInterrupt):
        for subject, _ in with_progress(
            console, found, lambda s: str(s.question), quiet=outputs.json
        ):
            if turn.is_over(outputs.limit):
                break
            tuned = None if outputs.again else read(subject.key)
            if tuned is None:
                tuned = sweep(subject, turn.device, turn.seconds)
                fault = _fault_of(turn.device)
                if fault is not None:
                    said = f"{subject.question}: no kernel runs here any more: {fault}"
                    console.print(said, markup=False, highlight=False)
                    break
                keep(tuned)
            results.append((subject.question, tuned))
    return results


def _fault_of(device: torch.device) -> str | None:
    """Why the device runs nothing any more: after an error of CUDA's all that follows fails."""
    try:
        synchroniser(device)()
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return None


def label(machine: Machine) -> str:
    """What the values are worth."""
    if machine.engine == "cpu":
        return "Tuned on the CPU engine: these values are used by it alone, never on a GPU."
    return "Tuned on this GPU: these values are used on it alone."


def table(results: Sequence[Result]) -> Table:
    """One line a question: the policy's own value beside the best."""
    shown = new_table(
        "operator strategy dtype shapes",
        right=("tried\nfailed", "policy\nthreads\nµs", "best\nthreads\nµs", "gain"),
    )
    for question, tuned in results:
        best = _trial_cells(tuned.best) if tuned.best else Text("none works\n-", "red")
        shown.add_row(
            f"{question.operator} {question.strategy} {question.dtype} {question.shape_class}",
            f"{len(tuned.trials)}\n{sum(trial.failure is not None for trial in tuned.trials)}",
            _trial_cells(tuned.trials[0]),
            best,
            _gain(tuned),
            end_section=True,
        )
    return shown


def _trial_cells(trial: Trial) -> str:
    """The time last; one value a line, so that two trials stand side by side in 80 columns."""
    time = "-" if trial.microseconds is None else f"{trial.microseconds:.1f}"
    values = (f"{name}={value}" for name, value in trial.values.items())
    return "\n".join([str(trial.group_size), *values, time])


def _gain(tuned: Tuned) -> str:
    own = tuned.trials[0].microseconds
    if tuned.best is None or own is None or not tuned.best.microseconds:
        return "-"
    return f"{own / tuned.best.microseconds:.2f}x"


def _json(results: Sequence[Result]) -> list[dict[str, object]]:
    return [{**asdict(tuned), "device_type": question.device} for question, tuned in results]


def _where(export: Path | None) -> str:
    kept = "Kept in the cache; they are used from now on."
    file = f" A policy file of your own is read from {user_file()} or ANYMETAL_POLICY."
    return kept + (f" Wrote {export}." if export else "") + file
