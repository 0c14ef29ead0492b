"""What a project asks of this library: `[tool.anymetal]` of its pyproject.toml, read and checked.

[tool.anymetal]
strict = true                            # warnings of the checker count as errors
nan = false                              # look for the first NaN or infinity
include_dirs = ["kernels/include"]       # from the file's own folder
policies = "policies.toml"               # or a table of the same form

[tool.anymetal.defines]
WIDTH = 4

[tool.anymetal.severity]
unwritten_output = "off"

[tool.anymetal.tolerance]
times_torch = 4
float16 = 2e-3

The names of kinds are the checker's, and the rows of policies the policies' own: those rooms check
them.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anymetal.errors import ProjectError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = "tool.anymetal"
TIMES_TORCH = "times_torch"
_DTYPES = ("float32", "float16", "bfloat16", "float64")
_MACRO = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Project:
    """The table, with every default; `file` is None where there is no pyproject.toml."""

    file: Path | None = None
    strict: bool = False
    nan: bool = False
    severity: Mapping[str, Any] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    include_dirs: tuple[Path, ...] = ()
    defines: Mapping[str, str] = field(default_factory=dict)
    policies: Path | Mapping[str, Any] | None = None

    def fault(self, message: object) -> ProjectError:
        """An error about this table, for a room that checks a part of it."""
        return ProjectError(f"{self.file}: [{TABLE}]: {message}")


def project(start: Path | None = None) -> Project:
    """The table of the nearest pyproject.toml, from a folder upwards; ProjectError where it says
    what nobody understands."""
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return _read(file)
    return Project()


def _read(file: Path) -> Project:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectError(f"{file}: {error}") from None
    table = data.get("tool", {}).get("anymetal", {})
    found = Project(file)
    try:
        return Project(file, **_checked(table, file.parent))
    except ValueError as error:
        raise found.fault(error) from None


def _checked(table: object, folder: Path) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ValueError(f"it is {table!r}: expected a table")
    values = {}
    for key, value in table.items():
        if key not in _READERS:
            raise ValueError(f"no option {key!r}; known are {', '.join(_READERS)}")
        values[key] = _READERS[key](key, value, folder)
    return values


def _flag(key: str, value: Any, folder: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}: expected true or false")
    return value


def _severity(key: str, value: Any, folder: Path) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{key} is {value!r}: expected a table of kinds")
    return value


def _tolerance(key: str, value: Any, folder: Path) -> Mapping[str, float]:
    if not isinstance(value, dict):
        raise ValueError(f"{key} is {value!r}: expected a table of dtypes")
    known = (TIMES_TORCH, *_DTYPES)
    for name, number in value.items():
        if name not in known:
            raise ValueError(f"{key}: no {name!r}; known are {', '.join(known)}")
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not 0 <= number < math.inf:
            raise ValueError(f"{key}.{name} is {number!r}: expected a number from 0 up")
    return {name: float(number) for name, number in value.items()}


def _include_dirs(key: str, value: Any, folder: Path) -> tuple[Path, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{key} is {value!r}: expected a list of directories")
    for place in value:
        if not isinstance(place, str) or not (folder / place).is_dir():
            raise ValueError(f"{key} has {place!r}: no such directory in {folder}")
    return tuple(folder / place for place in value)


def _defines(key: str, value: Any, folder: Path) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{key} is {value!r}: expected a table of macros")
    for name, text in value.items():
        if not _MACRO.fullmatch(name):
            raise ValueError(f"{key}: {name!r} is no name of a macro")
        if not isinstance(text, str | int | float) or "\n" in str(text):
            raise ValueError(f"{key}.{name} is {text!r}: expected a number or one line of text")
    # True and False read as they do in C.
    return {name: str(int(v) if isinstance(v, bool) else v) for name, v in value.items()}


def _policies(key: str, value: Any, folder: Path) -> Path | Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    if not isinstance(value, str) or not (folder / value).is_file():
        raise ValueError(f"{key} is {value!r}: expected a table, or a file in {folder}")
    return folder / value


_READERS: Mapping[str, Callable[[str, Any, Path], Any]] = {
    "strict": _flag,
    "nan": _flag,
    "severity": _severity,
    "tolerance": _tolerance,
    "include_dirs": _include_dirs,
    "defines": _defines,
    "policies": _policies,
}
