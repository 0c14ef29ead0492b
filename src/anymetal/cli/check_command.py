"""The words of `anymetal check` on the command line; the work is done in check.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from anymetal.cli.files import Options

_KERNEL = "One kernel of a Metal file"
_REPORT = "Report"


class CheckCommand(TyperCommand):
    """Words after a program belong to the program; words after a Metal file are options still."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = False
        found, *_ = self.make_parser(ctx).parse_args(list(args))
        ctx.allow_interspersed_args = is_metal(found.get("target"))
        return super().parse_args(ctx, args)


def is_metal(target: object) -> bool:
    return Path(str(target)).suffix == ".metal"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(cls=CheckCommand)(check)


def check(
    target: Annotated[
        Path,
        typer.Argument(
            exists=True, dir_okay=False, metavar="SCRIPT.py|FILE.metal", help="what to run"
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="arguments of the program")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="warnings count as errors")] = False,
    nan: Annotated[
        bool, typer.Option("--nan", help="also find where the first NaN or infinity is born")
    ] = False,
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="write JSON", rich_help_panel=_REPORT)
    ] = None,
    sarif: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="write SARIF for code scanning", rich_help_panel=_REPORT),
    ] = None,
    junit: Annotated[
        str | None, typer.Option(metavar="FILE", help="write JUnit XML", rich_help_panel=_REPORT)
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="which kernel", rich_help_panel=_KERNEL),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VALUE",
            help="the next argument: 7, 3.5, \\[1,2,3], float32\\[1024]=random (or zeros, ones,"
            " arange, a number), file.npy",
            rich_help_panel=_KERNEL,
        ),
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,N",
            help="size of the grid; the first tensor's if absent",
            rich_help_panel=_KERNEL,
        ),
    ] = None,
    group_size: Annotated[
        str | None,
        typer.Option(metavar="N,N,N", help="size of a threadgroup", rich_help_panel=_KERNEL),
    ] = None,
    memory: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INDEX=BYTES",
            help="the size of a threadgroup parameter",
            rich_help_panel=_KERNEL,
        ),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="a function constant", rich_help_panel=_KERNEL),
    ] = None,
    output: Annotated[
        list[int] | None,
        typer.Option(
            metavar="INDEX",
            help="an argument that must be written completely",
            rich_help_panel=_KERNEL,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="of random arguments", rich_help_panel=_KERNEL)
    ] = 0,
    include: Annotated[
        list[Path] | None,
        typer.Option("-I", metavar="DIR", help="a directory with headers", rich_help_panel=_KERNEL),
    ] = None,
    define: Annotated[
        list[str] | None,
        typer.Option("-D", metavar="NAME=VALUE", help="a macro", rich_help_panel=_KERNEL),
    ] = None,
) -> None:
    """Run a program, or one kernel, and find races, wrong indices and barriers in its kernels.

    The exit status is 1 when there are errors, otherwise the program's own.
    """
    from anymetal.cli.check import Files, KernelCall, check_kernel, check_script  # noqa: PLC0415

    files = Files(json, sarif, junit)
    if not is_metal(target):
        if kernel or arg:
            raise typer.BadParameter("--kernel and --arg go with a .metal file")
        raise typer.Exit(check_script(target, arguments or [], files, strict, nan))
    if arguments:
        raise typer.BadParameter(f"{arguments[0]}: pass arguments of the kernel with --arg")
    call = KernelCall(
        file=target,
        options=Options.parse(include, define),
        kernel=kernel,
        arguments=arg or [],
        threads=threads,
        group_size=group_size,
        threadgroup_memory=memory or [],
        constants=constant or [],
        outputs=output or [],
        seed=seed,
    )
    raise typer.Exit(check_kernel(call, files, strict, nan))
