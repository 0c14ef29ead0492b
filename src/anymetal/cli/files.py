"""Files that a verb will write are opened before its work starts: a mistake costs no minutes."""

from __future__ import annotations

from pathlib import Path

import typer


def check_writable(**paths: Path | str | None) -> None:
    """Each is the value of an option; what cannot be written is wrong usage, in one line."""
    for option, given in paths.items():
        if given is None:
            continue
        path = Path(given)
        if not path.parent.is_dir():
            problem = f"no such folder: {path.parent}"
        elif path.is_dir():
            problem = "it is a folder"
        else:
            problem = _opening_fault(path)
        if problem:
            raise typer.BadParameter(f"--{option.replace('_', '-')} {given}: {problem}")


def _opening_fault(path: Path) -> str:
    is_new = not path.exists()
    try:
        path.open("a").close()
    except OSError as error:
        return error.strerror or str(error)
    if is_new:
        path.unlink()
    return ""
