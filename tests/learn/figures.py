"""Figures of a page: sections that quote what was measured, and whether they say by which command.

A section quotes a measurement where it names a rate or a time of a small unit, the machine it was
taken on, or has a table with several fractions in a row.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.learn.links import FENCED

MEASURED = re.compile(
    r"\d[ -]?(?:ms|milliseconds?|µs|microseconds?|ns|nanoseconds?|[GT]B/s|[GT]FLOP/s)\b"
    r"|AMD EPYC|H200"
)
FRACTION = re.compile(r"\s*\d+\.\d")
COMMAND = re.compile(
    r"`(?:\w+=\S+ )?(?:python |make |anymetal |pytest |benchmarks/|tests/)[^`]+`"
    r"|^```sh$",
    re.MULTILINE,
)


def unnamed(path: Path) -> list[str]:
    """Headings of the sections that quote figures and name no command that printed them."""
    text = FENCED.sub(_without_code, path.read_text())
    sections = re.split(r"^(?=#+ )", text, flags=re.MULTILINE)
    return [
        section.partition("\n")[0]
        for section in sections
        if _quotes_figures(section) and not COMMAND.search(section)
    ]


def _without_code(block: re.Match[str]) -> str:
    """The fences stay, what is between them is no text of the page."""
    lines = block.group(0).splitlines()
    return f"{lines[0]}\n{lines[-1]}"


def _quotes_figures(section: str) -> bool:
    rows = (line.split("|") for line in section.splitlines() if line.startswith("|"))
    return MEASURED.search(section) is not None or any(
        sum(FRACTION.match(cell) is not None for cell in row) >= 2 for row in rows
    )
