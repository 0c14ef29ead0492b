"""The verbs of the command and their options; the work is done in the files beside this one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from anymetal import __version__, settings
from anymetal.cli import check_command, device, evidence, run
from anymetal.cli.files import Options

app = typer.Typer(
    help="Metal kernels for PyTorch on any machine.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\n\n".join(
        f"[bold]{setting.variable}[/]  {setting.meaning}" for setting in settings.ALL
    ),
)
cache_app = typer.Typer(help="The compiled kernels kept on disk.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")
check_command.register(app)
evidence.register(app)
device.register(app)
run.register(app)

Files = Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Metal files")]
Include = Annotated[
    list[Path] | None, typer.Option("-I", metavar="DIR", help="a directory with headers")
]
Define = Annotated[
    list[str] | None, typer.Option("-D", metavar="NAME=VALUE", help="a macro; VALUE is 1 if absent")
]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]

_PIPE_WIDTH = 200


def console() -> Console:
    """Where results go; made when needed, so that it writes to the stdout of that moment."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"anymetal {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="and exit")
    ] = False,
) -> None:
    """Metal kernels for PyTorch on any machine."""


@app.command()
def kernels(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="a Metal file")],
    include: Include = None,
    define: Define = None,
    json: Json = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="the engine that each kernel gets, and why")
    ] = False,
) -> None:
    """Show the kernels in a file: parameters and threadgroup memory."""
    from anymetal.cli.explain import show_engines  # noqa: PLC0415
    from anymetal.cli.kernels import show_kernels  # noqa: PLC0415

    show = show_engines if explain else show_kernels
    _exit(show(console(), file, Options.parse(include, define), json))


@app.command()
def lint(
    files: Files,
    include: Include = None,
    define: Define = None,
    json: Json = False,
    full: Annotated[
        bool, typer.Option("--full", help="also generate code, which finds broken limits; slow")
    ] = False,
) -> None:
    """Compile every kernel in the files; the exit status is 1 when one has an error."""
    from anymetal.cli.lint import lint_files  # noqa: PLC0415

    _exit(lint_files(console(), files, Options.parse(include, define), json, full))


@app.command()
def demo() -> None:
    """A guided tour: four kernels are compiled, run and compared with float64."""
    from anymetal.cli.demo import run_demo  # noqa: PLC0415

    _exit(run_demo(console()))


@cache_app.command("info")
def cache_info() -> None:
    """Where compiled kernels are kept, and how many."""
    from anymetal.store.cache import default_store  # noqa: PLC0415

    usage = default_store().usage()
    table = Table(show_header=False, box=None)
    table.add_row("directory", str(usage.directory))
    table.add_row("entries", f"{usage.entries}")
    table.add_row("size", f"{_megabytes(usage.size)} of at most {_megabytes(usage.limit)}")
    if not usage.persistent:
        table.add_row("kept", "until this process ends")
    console().print(table)


@cache_app.command("clear")
def cache_clear() -> None:
    """Remove all compiled kernels."""
    from anymetal.store.cache import default_store  # noqa: PLC0415

    before = default_store().clear()
    print(f"removed {before.entries} entries, {_megabytes(before.size)}, from {before.directory}")


def _megabytes(size: int) -> str:
    return f"{size / 1024 / 1024:.1f} MB"


def _exit(success: bool) -> None:
    if not success:
        raise typer.Exit(1)
