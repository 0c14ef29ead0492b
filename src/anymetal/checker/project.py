"""What a project asks of every check: strict, nan and severity of `[tool.anymetal]`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anymetal.checker.report import Level, Severities, checked_severities
from anymetal.project import project


@dataclass(frozen=True)
class CheckOptions:
    """How findings are judged: what a kind counts as, whether warnings count as errors, and whether
    NaN and infinity are looked for."""

    strict: bool = False
    nan: bool = False
    severity: Severities = field(default_factory=dict)

    def with_more(self, strict: bool, nan: bool, severity: Severities) -> CheckOptions:
        """These, and what a command line asks for on top of them."""
        return CheckOptions(self.strict or strict, self.nan or nan, {**self.severity, **severity})


def project_options(start: Path | None = None) -> CheckOptions:
    """Those of the project that a folder is in; ProjectError for kinds and levels that are none."""
    asked = project(start)
    try:
        return CheckOptions(asked.strict, asked.nan, checked_severities(asked.severity))
    except ValueError as error:
        raise asked.fault(error) from None


def parse_severities(words: list[str]) -> dict[str, Level]:
    """`KIND=LEVEL` words of a command line, checked."""
    severity: dict[str, Any] = {}
    for word in words:
        kind, separator, level = word.partition("=")
        if not separator:
            raise ValueError(f"{word!r}: expected KIND=LEVEL, with error, warning or off")
        severity[kind] = level
    checked_severities(severity)
    return severity
