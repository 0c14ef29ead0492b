"""What became of one kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """What became of one kernel. Empty texts are good; `results` has a word for each engine."""

    kernel: str
    family: str = ""
    refused: str = ""
    arguments: str = ""
    results: tuple[tuple[str, str], ...] = ()
