"""`anymetal device`: build the virtual mps device ahead of its use, or list what MPS lacks."""

from __future__ import annotations

import json
import time

import typer

from anymetal.cli.screen import Json
from anymetal.device import building
from anymetal.device.missing import missing_operators
from anymetal.errors import ToolchainError
from anymetal.store.cache import default_store

app = typer.Typer(help="The virtual mps device.", no_args_is_help=True)


@app.command()
def build() -> None:
    """Build the device's library for the installed torch, if that has not been done."""
    start = time.perf_counter()
    try:
        path = building.library(default_store())
    except ToolchainError as error:
        typer.echo(f"anymetal: {error}", err=True)
        raise typer.Exit(1) from None
    print(f"{path}  ({time.perf_counter() - start:.1f} s)")


@app.command()
def missing(as_json: Json = False) -> None:
    """List the operators that MPS lacks in the installed torch, from torch's own table."""
    names = sorted(set(missing_operators().values()))
    print(json.dumps(names, indent=2) if as_json else "\n".join(names))
