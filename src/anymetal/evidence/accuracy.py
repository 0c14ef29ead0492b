"""The table of the worst errors that stands in the documentation; a command writes it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from anymetal.evidence.health import DTYPES, Health
from anymetal.evidence.judge import RATIO_FLOOR, RATIO_TIMES_TORCH, TIMES_TORCH, Judgement
from anymetal.evidence.machine import Machine
from anymetal.ops.declare import OPERATORS

_TEXT = """# Accuracy

Written by `anymetal health --cases 0 --write-docs docs/accuracy.md`; do not edit.

The worst error of each operator over all of its cases, in units of the error that torch's own
operator (or the composition of torch operators) has in the same dtype: 1.00 is as good as torch.
Both are measured against float64, relative to the largest value of the result; torch's error counts
as one rounding at least. Up to {limit:g} passes, and so does any error below a few roundings. In
parentheses: the error itself. An operator named `..._backward` is the gradient alone.

Results of {factorisations} are judged by
LAPACK's test ratios (see [linear algebra](linalg.md)), since the errors of factors depend on the
matrix: up to {floor:g}, or {times:g} times torch's own, passes. Derivatives of eigenvectors and
singular vectors may have {gradients:g} of torch's errors.

{machine}

| operator | {columns} |
|---|{dashes}|
"""


def document(found: Sequence[Health], machine: Machine, before: str = "") -> str:
    """Markdown: one row an operator, forward and gradient of each dtype.

    Operators that are in the document `before`, and were not examined now, keep their rows.
    """
    headings = [*DTYPES, *(f"gradient {dtype}" for dtype in DTYPES)]
    text = _TEXT.format(
        limit=TIMES_TORCH,
        factorisations=", ".join(f"`{n}`" for n, one in OPERATORS.items() if one.ratios),
        floor=RATIO_FLOOR,
        times=RATIO_TIMES_TORCH,
        gradients=max(one.gradient_errors for one in OPERATORS.values()),
        machine=_measured(machine),
        columns=" | ".join(headings),
        dashes="|".join("---:" for _ in headings),
    )
    rows = {match[1]: match[0] for match in _ROW.finditer(before)}
    rows |= {health.operator: _row(health) for health in found}
    return text + "".join(f"{rows[name]}\n" for name in OPERATORS if name in rows)


def is_of(machine: Machine, before: str) -> bool:
    """Whether rows of this machine may stand beside those of the document `before`."""
    return _measured(machine) in before


def _measured(machine: Machine) -> str:
    return f"Measured with torch {machine.torch} on {machine.device}."


_ROW = re.compile(r"^\| (\w+) \|.*\|$", re.MULTILINE)


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
