"""`anymetal run`: run a program written for a Mac, with the virtual mps device."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from typing import Annotated, Any, get_args

import typer

from anymetal import settings

app = typer.Typer()


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    script: Annotated[str, typer.Argument(metavar="SCRIPT|MODULE", help="the program to run")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="its arguments")
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="run a module, as python -m does")] = False,
    missing: Annotated[
        str, typer.Option(metavar="run|warn|error", help="what operators do that MPS lacks")
    ] = "",
    asynchronous: Annotated[
        bool, typer.Option("--async", help="results are seen only where a Mac waits for its GPU")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="check its kernels, as anymetal check --mps does")
    ] = False,
) -> None:
    """Run a program written for PyTorch on a Mac: torch has a virtual mps device."""
    if missing not in ("", *get_args(settings.Missing)):
        raise typer.BadParameter(f"{missing!r}: expected run, warn or error", param_hint="missing")
    if not module and not os.path.exists(script):  # noqa: PTH110  (a zip file or folder runs too)
        raise typer.BadParameter(f"no such file: {script}", param_hint="SCRIPT")
    checker = ["-m", "anymetal", "check", "--mps"] if check else []
    command = [sys.executable, *checker, *(["-m"] if module else []), script, *(arguments or [])]
    sys.stdout.flush()
    os.execve(command[0], command, environment(missing, asynchronous))


def environment(missing: str = "", asynchronous: bool = False) -> dict[str, str]:
    """The environment in which `import torch` enables the device, in child processes too."""
    _check_installed(entry_points(group="torch.backends"))
    chosen = {settings.DEVICE.variable: "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    if missing:
        chosen[settings.DEVICE_MISSING.variable] = missing
    if asynchronous:
        chosen[settings.DEVICE_ASYNC.variable] = "1"
    return {**os.environ, **chosen}


def _check_installed(backends: Any) -> None:
    """torch finds us through the installed package's entry point, not through the import path."""
    if not any(backend.value.startswith("anymetal.device.") for backend in backends):
        raise typer.BadParameter(
            "torch does not find anymetal in this environment: install the package with pip, or"
            " call anymetal.device.enable() in the program"
        )
