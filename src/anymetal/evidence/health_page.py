"""What `health` saw as one HTML file: it opens anywhere, nothing is fetched, nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from anymetal.evidence import svg
from anymetal.evidence.health import DTYPES, Health, passed
from anymetal.evidence.judge import TIMES_TORCH
from anymetal.evidence.machine import Machine


def page(found: Sequence[Health], machine: Machine, seconds: float) -> str:
    """The whole document."""
    loader = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return pages.get_template("health_page.html").render(
        found=found,
        good=sum(health.passed for health in found),
        passed=passed(found),
        findings=[finding for health in found for finding in health.findings],
        machine=machine,
        seconds=seconds,
        dtypes=DTYPES,
        limit=TIMES_TORCH,
        plots=[
            svg.bars(f"{kind}s, in torch errors", ratios, limit=TIMES_TORCH)
            for kind in ("result", "gradient")
            if (ratios := _ratios(found, kind))
        ],
    )


def _ratios(found: Sequence[Health], kind: str) -> dict[str, dict[str, float]]:
    rows = {}
    for health in found:
        judgements = ((d, getattr(health, f"worst_{kind}")(d)) for d in DTYPES)
        ratios = {d: judgement.in_torch_errors for d, judgement in judgements if judgement}
        if ratios:
            rows[health.operator] = ratios
    return rows
