"""A compiler's messages for machines: SARIF, and GitHub's workflow commands."""

from __future__ import annotations

import json
from collections.abc import Sequence

from anymetal.checker.annotations import command
from anymetal.checker.sarif import physical_location, sarif_log
from anymetal.cli.sources import Diagnostic
from anymetal.nouns import Position

_RULE = "compile"
# SARIF's levels and GitHub's commands have their own words for a fatal error and for a note.
_LEVELS = {"warning": "warning", "note": "note"}
_COMMANDS = {"warning": "warning", "note": "notice"}


def lint_sarif(found: Sequence[Diagnostic]) -> str:
    """The file that `lint --sarif` writes."""
    rule = {
        "id": _RULE,
        "name": "Compile",
        "shortDescription": {"text": "What the compiler says about a kernel"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["metal", "gpu", "correctness"]},
    }
    results = [
        {
            "ruleId": _RULE,
            "ruleIndex": 0,
            "level": _LEVELS.get(one.severity, "error"),
            "message": {"text": one.message},
            "locations": [{"physicalLocation": physical_location(_position(one))}],
        }
        for one in found
    ]
    return json.dumps(sarif_log([rule], results), indent=2) + "\n"


def annotation(one: Diagnostic) -> str:
    """One message as GitHub shows it beside its line."""
    level = _COMMANDS.get(one.severity, "error")
    return command(level, _position(one), "anymetal lint", one.message)


def _position(one: Diagnostic) -> Position:
    return Position(one.file, max(1, one.line), max(1, one.column))
