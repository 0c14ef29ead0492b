"""`anymetal bench --verdict`: which of torch's functions ours should stand behind, here."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text

from anymetal.cli.operators import chosen_dtypes, with_progress
from anymetal.evidence.machine import describe, load
from anymetal.evidence.measure import Effort
from anymetal.evidence.overriding import measure_override
from anymetal.evidence.timing import one_thread
from anymetal.ops.declare import AnyOperator
from anymetal.overrides import verdicts
from anymetal.overrides.reasons import kind_of
from anymetal.overrides.table import TABLE
from anymetal.overrides.table import Row as Override


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
