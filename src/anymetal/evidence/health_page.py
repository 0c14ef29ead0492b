"""What `health` saw as one HTML file: it opens anywhere, nothing is fetched, nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from anymetal.evidence import svg
from anymetal.evidence.health import Health, passed
from anymetal.evidence.judge import TIMES_TORCH, Judgement
from anymetal.evidence.machine import Machine

DTYPES = ("fp32", "fp16", "bf16")

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .5rem; text-align: right; border-bottom: 1px solid #8883; }
th:first-child, td:first-child { text-align: left; }
.good { color: #228833; } .bad { color: #cc3311; font-weight: bold; }
.note { opacity: .7; } svg { max-width: 100%; height: auto; }
"""


def page(found: Sequence[Health], machine: Machine, seconds: float) -> str:
    """The whole document."""
    good = sum(health.passed for health in found)
    verdict = "good" if passed(found) else "bad"
    return "".join(
        (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>anymetal health</title>',
            f"<style>{_STYLE}</style><h1>anymetal health</h1>",
            f'<p class="{verdict}">{good} of {len(found)} operators pass.</p>',
            f'<p class="note">{escape(str(machine))}; {seconds:.0f} s</p>',
            _findings(found),
            "<h2>Operators</h2><p>The worst error over all cases, in units of torch's own error"
            f" against float64; up to {TIMES_TORCH:g} passes, and so does any error below a few"
            " roundings.</p>",
            _table(found),
            "<h2>Errors</h2>",
            svg.bars("results, in torch errors", _ratios(found, "result"), limit=TIMES_TORCH),
            svg.bars("gradients, in torch errors", _ratios(found, "gradient"), limit=TIMES_TORCH),
            "</html>\n",
        )
    )


def _findings(found: Sequence[Health]) -> str:
    items = [
        f"<li><b>{escape(finding.part)}</b> {escape(finding.where)}: {escape(finding.message)}</li>"
        for health in found
        for finding in health.findings
    ]
    return f"<h2>What is wrong</h2><ul>{''.join(items)}</ul>" if items else ""


def _table(found: Sequence[Health]) -> str:
    headings = [
        "operator",
        "",
        *DTYPES,
        *(f"∇ {dtype}" for dtype in DTYPES),
        "opcheck",
        "checker",
        "cases",
        "seconds",
    ]
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    return f"<table><tr>{head}</tr>{''.join(_row(health) for health in found)}</table>"


def _row(health: Health) -> str:
    cells = [f"<td>{escape(health.operator)}</td>", _mark(health.passed)]
    cells += [_judgement(health.worst_result(dtype)) for dtype in DTYPES]
    cells += [_judgement(health.worst_gradient(dtype)) for dtype in DTYPES]
    cells.append(_mark(health.opchecked) if health.opchecked else "<td>-</td>")
    clean = not health.findings_of("checker")
    cells.append(_mark(clean) if health.checked else "<td>-</td>")
    cells += [f"<td>{health.cases}</td>", f"<td>{health.seconds:.1f}</td>"]
    return f"<tr>{''.join(cells)}</tr>"


def _mark(good: bool) -> str:
    return '<td class="good">ok</td>' if good else '<td class="bad">fails</td>'


def _judgement(judgement: Judgement | None) -> str:
    if judgement is None:
        return "<td></td>"
    style = "" if judgement.passed else ' class="bad"'
    return f'<td{style} title="{escape(str(judgement))}">{judgement.in_torch_errors:.2f}</td>'


def _ratios(found: Sequence[Health], kind: str) -> dict[str, dict[str, float]]:
    rows = {}
    for health in found:
        judgements = ((d, getattr(health, f"worst_{kind}")(d)) for d in DTYPES)
        ratios = {d: judgement.in_torch_errors for d, judgement in judgements if judgement}
        if ratios:
            rows[health.operator] = ratios
    return rows
