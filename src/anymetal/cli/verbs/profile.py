"""`anymetal profile`: run a program, or one kernel, and count what each line of kernels does."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from anymetal.cli.checked_kernel import KernelCall, prepared
from anymetal.cli.checked_program import Program, run_within
from anymetal.cli.files import check_writable
from anymetal.cli.kernel_options import takes_kernel_options
from anymetal.cli.screen import Json
from anymetal.cli.sources import is_kernel_file
from anymetal.cli.verbs.check import CheckCommand
from anymetal.errors import AnymetalError
from anymetal.launch.handing import handed_to
from anymetal.profiler.collect import Profile, profile
from anymetal.profiler.lines import KernelProfile
from anymetal.profiler.listing import as_data, listing
from anymetal.profiler.page import page

app = typer.Typer()
_USAGE, _NOTHING_LAUNCHED = 2, 5


@app.command("profile", cls=CheckCommand)
@takes_kernel_options("output")
def profile_command(
    target: Annotated[
        str, typer.Argument(metavar="SCRIPT|FILE.metal|FILE.metallib", help="what to run")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="arguments of the program")
    ] = None,
    mps: Annotated[bool, typer.Option("--mps", help="give torch a virtual mps device")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write a page with heat and plots")
    ] = None,
    as_json: Json = False,
    *,
    call: KernelCall,
) -> None:
    """Run a program, or one kernel, and count what each line of its kernels does.

    The exit status is 5 when no kernel was launched, otherwise the program's own.
    """
    check_writable(html=html)
    if not Path(target).exists():
        raise typer.BadParameter(f"no such file: {target}")
    if is_kernel_file(target):
        found, status = _profiled_kernel(replace(call, file=Path(target)))
    else:
        if call.kernel or call.arguments:
            raise typer.BadParameter("--kernel and --arg go with a .metal file or a metallib")
        found, status = _profiled_program(Program(target, arguments or [], mps=mps))
    _publish(found.kernels, html, as_json)
    raise typer.Exit(status or (0 if found.kernels else _NOTHING_LAUNCHED))


def _profiled_kernel(call: KernelCall) -> tuple[Profile, int]:
    try:
        ready = prepared(call)
        with profile() as found:
            ready.kernel(*ready.arguments, **ready.keywords)
    except (AnymetalError, RuntimeError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)  # the source or the call is wrong: nothing ran
        raise typer.Exit(_USAGE) from None
    return found, 0


def _profiled_program(program: Program) -> tuple[Profile, int]:
    found = Profile()
    return found, run_within(program, handed_to(found), {})


def _publish(kernels: Sequence[KernelProfile], html: Path | None, as_json: bool) -> None:
    if html is not None:
        html.write_text(page(kernels))
    if as_json:
        print(json.dumps({"kernels": [as_data(one) for one in kernels]}, indent=2))
        return
    for one in kernels:
        print(listing(one) + "\n")
    if html is not None:
        print(f"wrote {html}")
