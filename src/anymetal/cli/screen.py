"""What all verbs share: where results go, the exit status, and options of the same meaning."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="print JSON")]

_PIPE_WIDTH = 200


def console() -> Console:
    """Where results go; made when needed, so that it writes to the stdout of that moment."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)


def finish(success: bool) -> None:
    """End the verb: the exit status is 1 where it did not succeed."""
    if not success:
        raise typer.Exit(1)
