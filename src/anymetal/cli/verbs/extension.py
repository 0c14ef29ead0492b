"""`anymetal extension`: Objective-C++ extensions for MPS: new ones, builds, checks, packages."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from anymetal.errors import ToolchainError
from anymetal.extension import mac_check, packaging, scaffold
from anymetal.extension.building import extension_library
from anymetal.extension.native import native_library
from anymetal.extension.project import read_project
from anymetal.store.cache import default_store

app = typer.Typer(help="Objective-C++ extensions for torch's MPS backend.", no_args_is_help=True)

Place = Annotated[Path, typer.Argument(metavar="[FOLDER|FILE.mm]", help="the extension")]


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="of the package and its operators")],
    template: Annotated[
        str, typer.Option(metavar="|".join(scaffold.names()), help="what its operator does")
    ] = "elementwise",
    folder: Annotated[Path | None, typer.Option("-o", help="where; the default is NAME")] = None,
) -> None:
    """Write a project that works as it stands: kernel, operator, gradients, tests, CI."""
    target = folder or Path(name)
    with _explained():
        files = scaffold.write(name, template, target)
    for path in files:
        print(target / path)


@app.command()
def build(
    place: Place = Path(),
    mac: Annotated[
        bool, typer.Option("--mac-check", help="also compile and link it for macOS, on any machine")
    ] = False,
) -> None:
    """Build the extension: natively on a Mac, on Linux for the virtual mps device."""
    start = time.perf_counter()
    with _explained():
        project = read_project(place)
        if sys.platform == "darwin":
            library = native_library(project)
        else:
            _, library = extension_library(default_store(), project)
        print(f"{library}  ({time.perf_counter() - start:.1f} s)")
        if mac:
            print(mac_check.check(default_store(), project))


@app.command()
def wheel(
    place: Place = Path(),
    out: Annotated[Path, typer.Option("-o", help="the folder for the result")] = Path("dist"),
    hf: Annotated[
        bool, typer.Option("--hf", help="write the layout of Hugging Face's `kernels` instead")
    ] = False,
) -> None:
    """Package it: a wheel on a Mac, elsewhere a source distribution that builds on one."""
    with _explained():
        project = read_project(place)
        written = packaging.hugging_face(project, out) if hf else packaging.package(project, out)
    for path in written:
        print(path)


@contextmanager
def _explained() -> Iterator[None]:
    """What cannot be built or written ends the command with its words."""
    try:
        yield
    except (ToolchainError, ValueError, OSError) as error:
        typer.echo(f"anymetal: {error}", err=True)
        raise typer.Exit(1) from None
