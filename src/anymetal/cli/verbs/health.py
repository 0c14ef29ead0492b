"""`anymetal health`: run every operator on this machine and judge it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.text import Text

from anymetal.cli.files import check_writable
from anymetal.cli.operators import Device, Names, chosen_device, chosen_operators, with_progress
from anymetal.cli.screen import Json, console, finish
from anymetal.engines.compiler import compiler_is_here
from anymetal.evidence import accuracy, health_page
from anymetal.evidence.examiners import examine_all
from anymetal.evidence.health import DTYPES, Health, Plan, compare_engines, passed
from anymetal.evidence.judge import Judgement
from anymetal.evidence.machine import describe
from anymetal.ops.declare import AnyOperator

app = typer.Typer()
_WITHOUT_COMPILER = "No compiler is installed: opcheck and the checker are left out."
_NAME = 37  # columns of the longest operator's name
_WIDE = 114  # columns of a line with everything


@app.command()
def health(
    operators: Names = None,
    device: Device = None,
    cases: Annotated[
        int,
        typer.Option(min=0, help="shapes of each operator in float32, one in the others; 0: all"),
    ] = 3,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write a report with plots")
    ] = None,
    write_docs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="write the table of errors as Markdown, or renew its rows"
        ),
    ] = None,
    compare_engines: Annotated[
        bool, typer.Option("--compare-engines", help="run each case on the GPU and on the CPU")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run every operator on this machine and judge it; the exit status is 1 when one fails."""
    check_writable(html=html, write_docs=write_docs)
    chosen = chosen_operators(operators)
    place = chosen_device(device)
    if compare_engines:
        finish(compare(console(), chosen, place, cases, as_json))
    else:
        if operators and write_docs is not None:
            _refuse_another_machine(write_docs, place)
        outputs = Outputs(html, write_docs, as_json)
        finish(run(console(), chosen, place, cases, outputs))


def _refuse_another_machine(docs: Path, device: torch.device) -> None:
    """Some rows of a table are renewed only where the others come from."""
    if docs.exists() and not accuracy.is_of(describe(device), docs.read_text()):
        raise typer.BadParameter(
            f"--write-docs {docs}: its rows were measured with another torch or on another machine;"
            " name no operators to measure all of them here"
        )


@dataclass(frozen=True)
class Outputs:
    """What to write besides the lines."""

    html: Path | None = None
    docs: Path | None = None
    json: bool = False


def run(
    console: Console,
    operators: Sequence[AnyOperator],
    device: torch.device,
    cases: int,
    outputs: Outputs,
) -> bool:
    """Examine the operators; False when one fails or there are none."""
    start = time.perf_counter()
    machine = describe(device)
    plan, note = Plan(device, cases), ""
    if not compiler_is_here():
        plan, note = replace(plan, opcheck=False, checker=False), _WITHOUT_COMPILER
    if not outputs.json:
        console.print(f"{machine}\n{note}", style="dim", markup=False, highlight=False)
        console.print(_heading(console.width))
    found = []
    examined = examine_all(operators, plan)
    for _, show in with_progress(console, operators, _name, quiet=outputs.json):
        found.append(next(examined))
        show(line(found[-1], console.width))
        for finding in found[-1].findings[:3]:
            show(Text(f"    {finding.part}: {finding.where}: {finding.message}", style="red"))
    seconds = time.perf_counter() - start
    if outputs.html is not None:
        outputs.html.write_text(health_page.page(found, machine, seconds))
    if outputs.docs is not None:
        before = outputs.docs.read_text() if outputs.docs.exists() else ""
        outputs.docs.write_text(accuracy.document(found, machine, before))
    if outputs.json:
        print(json.dumps(as_json(found, machine.to_json(), seconds), indent=2))
    else:
        console.print(_summary(found, seconds))
        _say_where(console, outputs)
    return passed(found)


def compare(
    console: Console,
    operators: Sequence[AnyOperator],
    device: torch.device,
    cases: int,
    quiet: bool,
) -> bool:
    """Each case on the device and on the CPU engine; False when they differ or there is no GPU."""
    if device.type == "cpu":
        console.print(
            "There is no GPU here to compare with. On a Mac this command runs every case on the GPU"
            " and on the CPU engine; elsewhere ANYMETAL_DEVICE=1 compares the virtual mps device.",
            style="red",
        )
        return False
    rows: list[dict[str, Any]] = []
    plan = Plan(device, cases)
    if not quiet:
        heading = f"{'largest error':<{_NAME + 8}}{'cases':>5}{'GPU':>10}{'CPU':>10}"
        console.print(Text(heading, "bold"))
    for operator, show in with_progress(console, operators, _name, quiet=quiet):
        compared = compare_engines(operator, plan)
        rows += [_compared_json(exercise, judgement) for exercise, judgement in compared]
        show(_compared_line(operator.name, [judgement for _, judgement in compared]))
        for exercise, judgement in compared:
            if not judgement.passed:
                show(Text(f"    {exercise.case.name} {exercise.dtype_name}: {judgement}", "red"))
    if quiet:
        print(json.dumps({"machine": describe(device).to_json(), "rows": rows}, indent=2))
    return bool(rows) and all(row["passed"] for row in rows)


def line(health: Health, width: int) -> Text:
    """One operator: a verdict, the worst error of each dtype, and what else was looked at, which
    stands in a second line where the console has not room for all."""
    text = Text(f"{health.operator:<{_NAME}}")
    text.append("ok    " if health.passed else "FAILS ", "green" if health.passed else "bold red")
    for worst in (health.worst_result, health.worst_gradient):
        for dtype in DTYPES:
            text.append(f"{_ratio(worst(dtype)):>6}")
    opcheck = _word(health, "opcheck", health.opchecked)
    checker = _word(health, "checker", health.checked > 0)
    if width >= _WIDE:
        text.append(f"  {opcheck:<9}{checker:<9}")
        text.append(f"{health.cases:>5} {health.seconds:>7.1f} s", "dim")
    else:
        text.append(f"\n  opcheck {opcheck}, checker {checker}, ", "dim")
        text.append(f"{health.cases} cases, {health.seconds:.1f} s", "dim")
    return text


def as_json(found: Sequence[Health], machine: dict[str, object], seconds: float) -> dict[str, Any]:
    """Everything that was seen, as numbers."""
    return {
        "machine": machine,
        "seconds": seconds,
        "passed": passed(found),
        "operators": [_health_json(health) for health in found],
    }


def _health_json(health: Health) -> dict[str, Any]:
    def worst(kind: str) -> dict[str, Any]:
        judgements = ((d, getattr(health, f"worst_{kind}")(d)) for d in DTYPES)
        return {d: _judgement_json(judgement) for d, judgement in judgements if judgement}

    return {
        "operator": health.operator,
        "passed": health.passed,
        "results": worst("result"),
        "gradients": worst("gradient"),
        "opcheck": health.opchecked,
        "checked": health.checked,
        "cases": health.cases,
        "seconds": health.seconds,
        "findings": [vars(finding) for finding in health.findings],
    }


def _judgement_json(judgement: Judgement) -> dict[str, Any]:
    return {
        "error": judgement.error,
        "torch_error": judgement.torch_error,
        "in_torch_errors": judgement.in_torch_errors,
        "passed": judgement.passed,
    }


def _compared_json(exercise: Any, judgement: Judgement) -> dict[str, Any]:
    return {
        "operator": exercise.operator.name,
        "dtype": exercise.dtype_name,
        "case": exercise.case.name,
        "gpu_error": judgement.error,
        "cpu_error": judgement.torch_error,
        "passed": judgement.passed,
    }


def _compared_line(name: str, judgements: Sequence[Judgement]) -> Text:
    fine = all(judgement.passed for judgement in judgements)
    text = Text(f"{name:<{_NAME}}")
    text.append("agrees  " if fine else "DIFFERS ", "green" if fine else "bold red")
    largest = max((judgement.error for judgement in judgements), default=0.0)
    cpu = max((judgement.torch_error for judgement in judgements), default=0.0)
    text.append(f"{len(judgements):>5}{largest:>10.1e}{cpu:>10.1e}")
    return text


def _heading(width: int) -> Text:
    text = Text(f"{'worst error, in torch errors':<{_NAME + 6}}", "bold")
    for mark in ("", "∇"):
        for dtype in DTYPES:
            text.append(f"{mark + dtype:>6}", "bold")
    if width >= _WIDE:
        text.append(f"  {'opcheck':<9}{'checker':<9}{'cases':>5}", "bold")
    return text


def _summary(found: Sequence[Health], seconds: float) -> Text:
    good = sum(health.passed for health in found)
    text = Text(f"\n{good} of {len(found)} operators pass, in {seconds:.0f} s")
    text.stylize("bold green" if passed(found) else "bold red")
    return text


def _say_where(console: Console, outputs: Outputs) -> None:
    for path in (outputs.html, outputs.docs):
        if path is not None:
            console.print(f"wrote {path}", highlight=False, markup=False)


def _ratio(judgement: Judgement | None) -> str:
    if judgement is None:
        return "-"
    errors = judgement.in_torch_errors
    return "wrong" if errors >= 1000 else f"{errors:.2f}" if errors < 100 else f"{errors:.0f}"


def _word(health: Health, part: str, done: bool) -> str:
    if health.findings_of(part):
        return "fails"
    return "ok" if done else "-"


def _name(operator: AnyOperator) -> str:
    return operator.name
