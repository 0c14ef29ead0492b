"""Files that a verb will write are opened before its work starts: a mistake costs no minutes."""

from __future__ import annotations

from pathlib import Path

import typer

STDOUT = "-"


def check_writable(**paths: Path | str | None) -> None:
    """Each is the value of an option; what cannot be written is wrong usage, in one line."""
    for option, given in paths.items():
        problem = writing_fault(given) if given is not None else ""
        if problem:
            raise typer.BadParameter(f"--{option.replace('_', '-')} {given}: {problem}")


def writing_fault(given: Path | str) -> str:
    """Why a file cannot be written; empty where it can, and for stdout."""
    path = Path(given)
    if given == STDOUT:
        return ""
    if not path.parent.is_dir():
        return f"no such folder: {path.parent}"
    if path.is_dir():
        return "it is a folder"
    is_new = not path.exists()
    try:
        path.open("a").close()
    except OSError as error:
        return error.strerror or str(error)
    if is_new:
        path.unlink()
    return ""
