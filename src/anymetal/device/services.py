"""What the device needs from the rest of the package, handed in from above.

This room imports no other. Who compiles Metal and keeps files is named here and found when the
device is enabled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

_PROVIDER = "anymetal.launch.virtual"


@dataclass(frozen=True)
class Services:
    """The ways out of this room."""

    compile_shader: Callable[[str], Any]
    """Metal source in, a library of kernels out."""

    keep_file: Callable[[str, Callable[[Path], None]], Path]
    """A key and a function that writes a file in; where the file is kept out."""

    lock_directory: Path
    """Where processes that build the same file at once meet."""


def find_services() -> Services:
    """Ask the room above for them."""
    return cast(Services, import_module(_PROVIDER).services())
