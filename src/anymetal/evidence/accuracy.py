"""The table of the worst errors that stands in the documentation; a command writes it."""

from __future__ import annotations

from collections.abc import Sequence

from anymetal.evidence.health import DTYPES, Health
from anymetal.evidence.judge import TIMES_TORCH, Judgement
from anymetal.evidence.machine import Machine

_TEXT = """# Accuracy

Written by `anymetal health --cases 0 --write-docs docs/accuracy.md`; do not edit.

The worst error of each operator over all of its cases, in units of the error that torch's own
operator (or the composition of torch operators) has in the same dtype: 1.00 is as good as torch.
Both are measured against float64, relative to the largest value of the result; torch's error counts
as one rounding at least. Up to {limit:g} passes, and so does any error below a few roundings. In
parentheses: the error itself. An operator named `..._backward` is the gradient alone.

{machine}

| operator | {columns} |
|---|{dashes}|
"""


def document(found: Sequence[Health], machine: Machine) -> str:
    """Markdown: one row an operator, forward and gradient of each dtype."""
    headings = [*DTYPES, *(f"gradient {dtype}" for dtype in DTYPES)]
    text = _TEXT.format(
        limit=TIMES_TORCH,
        machine=f"Measured with torch {machine.torch} on {machine.device}.",
        columns=" | ".join(headings),
        dashes="|".join("---:" for _ in headings),
    )
    return text + "".join(f"{_row(health)}\n" for health in found)


def _row(health: Health) -> str:
    cells = [_cell(health.worst_result(dtype)) for dtype in DTYPES]
    cells += [_cell(health.worst_gradient(dtype)) for dtype in DTYPES]
    return f"| {health.operator} | {' | '.join(cells)} |"


def _cell(judgement: Judgement | None) -> str:
    if judgement is None:
        return ""
    if judgement.error == float("inf"):
        return "wrong"
    return f"{judgement.in_torch_errors:.2f} ({judgement.error:.1e})"
