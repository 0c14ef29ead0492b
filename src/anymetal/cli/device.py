"""`anymetal device`: build the virtual mps device ahead of its use, and say what it lacks."""

from __future__ import annotations

import time

import typer

device_app = typer.Typer(help="The virtual mps device.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(device_app, name="device")


@device_app.command()
def build() -> None:
    """Build the device's library for the installed torch, if that has not been done."""
    from anymetal.device import building  # noqa: PLC0415  (imports torch)
    from anymetal.errors import ToolchainError  # noqa: PLC0415
    from anymetal.store.cache import default_store  # noqa: PLC0415

    start = time.perf_counter()
    try:
        path = building.library(default_store())
    except ToolchainError as error:
        typer.echo(f"anymetal: {error}", err=True)
        raise typer.Exit(1) from None
    print(f"{path}  ({time.perf_counter() - start:.1f} s)")


@device_app.command()
def missing() -> None:
    """List the operators that MPS lacks in the installed torch, from torch's own table."""
    from anymetal.device.missing import missing_operators  # noqa: PLC0415

    names = missing_operators()
    for name in sorted(set(names.values())):
        print(name)
