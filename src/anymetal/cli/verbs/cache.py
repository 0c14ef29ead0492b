"""`anymetal cache`: show or clear the compiled kernels kept on disk."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer
from rich.table import Table

from anymetal.cli.screen import Json, console
from anymetal.store.cache import default_store

app = typer.Typer(help="The compiled kernels kept on disk.", no_args_is_help=True)


@app.command()
def info(as_json: Json = False) -> None:
    """Where compiled kernels are kept, and how many."""
    usage = default_store().usage()
    if as_json:
        print(json.dumps({**asdict(usage), "directory": str(usage.directory)}, indent=2))
        return
    table = Table(show_header=False, box=None)
    table.add_row("directory", str(usage.directory))
    table.add_row("entries", f"{usage.entries}")
    table.add_row("size", f"{_megabytes(usage.size)} of at most {_megabytes(usage.limit)}")
    if not usage.persistent:
        table.add_row("kept", "until this process ends")
    console().print(table)


@app.command()
def clear() -> None:
    """Remove all compiled kernels."""
    before = default_store().clear()
    print(f"removed {before.entries} entries, {_megabytes(before.size)}, from {before.directory}")


def _megabytes(size: int) -> str:
    return f"{size / 1024 / 1024:.1f} MB"
