"""What a project asks of every check: `[tool.anymetal]` in its pyproject.toml.

[tool.anymetal]
strict = true
nan = false

[tool.anymetal.severity]
unwritten_output = "off"
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anymetal.checker.report import Level, Severities, checked_severities

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_KEYS = ("strict", "nan", "severity")


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
    """The table of the nearest pyproject.toml, from a folder upwards; ValueError where it says what
    nobody understands."""
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return _options(file)
    return CheckOptions()


def _options(file: Path) -> CheckOptions:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("anymetal", {})
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {error}") from None
    try:
        return _checked(table)
    except ValueError as error:
        raise ValueError(f"{file}: [tool.anymetal]: {error}") from None


def _checked(table: Mapping[str, Any]) -> CheckOptions:
    for key, value in table.items():
        if key not in _KEYS:
            raise ValueError(f"no option {key!r}; known are {', '.join(_KEYS)}")
        if key != "severity" and not isinstance(value, bool):
            raise ValueError(f"{key} is {value!r}: expected true or false")
    severity = table.get("severity", {})
    if not isinstance(severity, dict):
        raise ValueError(f"severity is {severity!r}: expected a table of kinds")
    return CheckOptions(
        table.get("strict", False), table.get("nan", False), checked_severities(severity)
    )


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
