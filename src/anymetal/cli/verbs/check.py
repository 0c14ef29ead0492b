"""`anymetal check`: run a program, or one kernel, and find races and wrong accesses."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from anymetal.checker.project import CheckOptions, parse_severities, project_options
from anymetal.checker.report import Report
from anymetal.cli.checked_kernel import KernelCall, launch
from anymetal.cli.checked_program import Program, run_program
from anymetal.cli.files import check_writable
from anymetal.cli.kernel_options import takes_kernel_options
from anymetal.cli.publish import Files, publish
from anymetal.cli.sources import is_kernel_file
from anymetal.errors import AnymetalError

_FAILED, _USAGE = 1, 2
_NOTHING_LAUNCHED = 5  # pytest's status for a run without tests
_REPORT = "Report"


class CheckCommand(TyperCommand):
    """Words after a program belong to the program; words after a Metal file are options still."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = False
        found, *_ = self.make_parser(ctx).parse_args(list(args))
        ctx.allow_interspersed_args = is_kernel_file(found.get("target"))
        return super().parse_args(ctx, args)


def _of_report(*words: str, metavar: str, help: str) -> Any:
    return typer.Option(*words, metavar=metavar, help=help, rich_help_panel=_REPORT)


_TARGET = typer.Argument(metavar="SCRIPT|MODULE|FILE.metal|FILE.metallib", help="what to run")
_ARGUMENTS = typer.Argument(metavar="ARGS", help="arguments of the program")
_MODULE = typer.Option("-m", help="run a module, as python -m does")
_MPS = typer.Option("--mps", help="give torch a virtual mps device")
_STRICT = typer.Option("--strict", help="warnings count as errors")
_NAN = typer.Option("--nan", help="also find where the first NaN or infinity is born")
_SEVERITY = typer.Option(
    metavar="KIND=LEVEL", help="what a kind of finding counts as: error, warning or off"
)
_JSON = _of_report(metavar="FILE", help="write JSON")
_SARIF = _of_report(metavar="FILE", help="write SARIF for code scanning")
_JUNIT = _of_report(metavar="FILE", help="write JUnit XML")

app = typer.Typer()


@app.command(cls=CheckCommand)
@takes_kernel_options()
def check(
    target: Annotated[str, _TARGET],
    arguments: Annotated[list[str] | None, _ARGUMENTS] = None,
    module: Annotated[bool, _MODULE] = False,
    mps: Annotated[bool, _MPS] = False,
    strict: Annotated[bool, _STRICT] = False,
    nan: Annotated[bool, _NAN] = False,
    severity: Annotated[list[str] | None, _SEVERITY] = None,
    json: Annotated[str | None, _JSON] = None,
    sarif: Annotated[str | None, _SARIF] = None,
    junit: Annotated[str | None, _JUNIT] = None,
    *,
    call: KernelCall,
) -> None:
    """Run a program, or one kernel, and find races, wrong indices and barriers in its kernels.

    The exit status is 1 when there are errors, 5 when no kernel was launched, otherwise the
    program's own.
    """
    check_writable(json=json, sarif=sarif, junit=junit)
    files = Files(json, sarif, junit)
    options = _options(strict, nan, severity or [])
    if not module and not Path(target).exists():
        raise typer.BadParameter(f"no such file: {target}")
    if module or not is_kernel_file(target):
        if call.kernel or call.arguments:
            raise typer.BadParameter("--kernel and --arg go with a .metal file or a metallib")
        program = Program(target, arguments or [], module, mps)
        raise typer.Exit(check_program(program, files, options))
    if arguments:
        raise typer.BadParameter(f"{arguments[0]}: pass arguments of the kernel with --arg")
    raise typer.Exit(check_kernel(replace(call, file=Path(target)), files, options))


def _options(strict: bool, nan: bool, severity: list[str]) -> CheckOptions:
    try:
        return project_options().with_more(strict, nan, parse_severities(severity))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def check_program(program: Program, files: Files, options: CheckOptions) -> int:
    """Run a program as Python would, and report; returns the exit status."""
    report = Report(options.severity)
    status = run_program(program, report, options.nan)
    publish(report, files, options.strict)
    if report.failed(options.strict):
        return _FAILED
    return status if status or report.launches else _NOTHING_LAUNCHED


def check_kernel(call: KernelCall, files: Files, options: CheckOptions) -> int:
    """Run one kernel once, and report; 1 when there are findings that count."""
    report = Report(options.severity)
    try:
        launch(call, report, options.nan)
    except (AnymetalError, RuntimeError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)  # the source or the call is wrong: nothing ran
        return _USAGE
    publish(report, files, options.strict)
    return _FAILED if report.failed(options.strict) else 0
