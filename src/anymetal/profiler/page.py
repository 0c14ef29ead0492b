"""A profile as one HTML file: it opens anywhere, nothing is fetched, nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from anymetal.evidence import svg
from anymetal.profiler.hints import hints
from anymetal.profiler.lines import KernelProfile
from anymetal.profiler.listing import ASSUMPTIONS, number, summary
from anymetal.profiler.roofline import bounds, chips, intensity


def page(profiles: Sequence[KernelProfile]) -> str:
    """The whole document."""
    loader = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return pages.get_template("page.html").render(
        kernels=[_kernel(profile) for profile in profiles],
        assumptions=ASSUMPTIONS,
        chips=chips(),
    )


def _kernel(profile: KernelProfile) -> dict[str, Any]:
    return {
        "profile": profile,
        "rows": _rows(profile),
        "summary": summary(profile).splitlines(),
        "hints": hints(profile),
        "bounds": bounds(profile),
        "plot": _plot(profile),
    }


def _rows(profile: KernelProfile) -> list[dict[str, Any]]:
    """Every line of the source; the heat is its share of the costliest line."""
    costs = {n: _cost(profile, n) for n in profile.lines}
    most = max(costs.values(), default=0) or 1
    notes: dict[int, list[str]] = {}
    for hint in hints(profile):
        notes.setdefault(hint.line, []).append(hint.text)
    return [
        {
            "number": n,
            "text": text,
            "line": profile.lines.get(n),
            "heat": round(costs.get(n, 0) / most, 3),
            "never": n in profile.never,
            "bytes": number(sum(profile.lines[n].bytes.values())) if n in profile.lines else "",
            "operations": number(profile.lines[n].arithmetic) if n in profile.lines else "",
            "notes": notes.get(n, []),
        }
        for n, text in enumerate(profile.source, 1)
    ]


def _cost(profile: KernelProfile, n: int) -> int:
    """Bytes that moved, cycles of threadgroup memory as bytes, and operations."""
    line = profile.lines[n]
    return line.moved_bytes + 128 * line.bank_cycles + line.arithmetic


def _plot(profile: KernelProfile) -> str:
    per_byte = intensity(profile)
    roofs = {
        chip.name: (chip.bandwidth, chip.fp32 * 1e3)
        for chip in chips()
        if chip.bandwidth is not None and chip.fp32 is not None
    }
    if per_byte is None:
        return ""
    return svg.roofline(f"{profile.name}: roofs of chips whose rates are known", roofs, per_byte)
