"""The table of errors in the documentation is made by a command, and made again when it must be."""

from __future__ import annotations

from pathlib import Path

import anymetal.linalg
import anymetal.ops  # noqa: F401  (declares the operators)
from anymetal.evidence.judge import TIMES_TORCH
from anymetal.ops.declare import OPERATORS

DOCUMENT = Path(__file__).parents[2] / "docs" / "accuracy.md"


def test_every_operator_is_in_the_table() -> None:
    rows = [line.split("|")[1].strip() for line in DOCUMENT.read_text().splitlines() if "|" in line]
    missing = [name for name in OPERATORS if name not in rows]
    assert not missing, "run: anymetal health --cases 0 --write-docs docs/accuracy.md"


def test_no_operator_is_wrong_in_the_table() -> None:
    text = DOCUMENT.read_text()
    assert "wrong" not in text and f"Up to {TIMES_TORCH:g} passes" in text
