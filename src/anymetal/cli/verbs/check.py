"""`anymetal check`: run a program, or one kernel, and find races and wrong accesses."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from anymetal import settings
from anymetal.checker.annotations import annotation_lines, wanted
from anymetal.checker.context import ActiveCheck
from anymetal.checker.json_report import json_text
from anymetal.checker.junit import junit_text
from anymetal.checker.report import Report
from anymetal.checker.sarif import sarif_text
from anymetal.checker.terminal import print_report
from anymetal.cli.kernel_arguments import parse_arguments, parse_number, parse_sizes
from anymetal.cli.sources import Options, source_of
from anymetal.errors import AnymetalError
from anymetal.launch.shader import compile_shader
from anymetal.nouns import Scalar

_USAGE = 2
_INTERRUPTED = 130
_STDOUT = "-"
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


app = typer.Typer()


@app.command(cls=CheckCommand)
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


@dataclass(frozen=True)
class Files:
    """Where the report goes besides the terminal; `-` is stdout."""

    json: str | None = None
    sarif: str | None = None
    junit: str | None = None

    @property
    def to_stdout(self) -> bool:
        return _STDOUT in (self.json, self.sarif, self.junit)


@dataclass(frozen=True)
class KernelCall:
    """One launch as the command line describes it."""

    file: Path
    options: Options
    kernel: str | None
    arguments: Sequence[str]
    threads: str | None
    group_size: str | None
    threadgroup_memory: Sequence[str]
    constants: Sequence[str]
    outputs: Sequence[int]
    seed: int


def check_script(
    script: Path, arguments: Sequence[str], files: Files, strict: bool, nan: bool
) -> int:
    """Run a program as Python would, and report; returns the exit status.

    1 when there are findings that count, otherwise the program's own status.
    """
    report = Report()
    with _as_program(script, arguments), ActiveCheck(report, nan=nan):
        status = _run_program(script)
    sys.stdout.flush()
    _publish(report, files, strict)
    return 1 if report.failed(strict) else status


def check_kernel(call: KernelCall, files: Files, strict: bool, nan: bool) -> int:
    """Run one kernel once, and report; 1 when there are findings that count."""
    report = Report()
    try:
        _launch(call, report, nan)
    except (AnymetalError, RuntimeError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)  # the source or the call is wrong: nothing ran
        return _USAGE
    _publish(report, files, strict)
    return 1 if report.failed(strict) else 0


@contextmanager
def _as_program(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """What a program finds when it starts: its arguments, and its directory in the search path.

    Programs that this one starts in turn print what they find; their status is not known here.
    """
    argv, path = sys.argv, list(sys.path)
    variable = settings.CHECK.variable
    before = os.environ.get(variable)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.absolute().parent))
    os.environ[variable] = "1"
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before


def _run_program(script: Path) -> int:
    """What `python SCRIPT` would do and exit with."""
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as exit_request:
        return _status(exit_request.code)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        _print_trace(error, script)
        return 1
    return 0


def _status(code: object) -> int:
    """The status of `sys.exit(code)`: a message goes to stderr and counts as 1."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _print_trace(error: Exception, script: Path) -> None:
    """The traceback from the program's first line on, without the frames that started it."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != str(script):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)


def _launch(call: KernelCall, report: Report, nan: bool) -> None:
    source = source_of(call.file, call.options)
    arguments = parse_arguments(call.arguments, call.seed)
    outputs = [_output(arguments, index) for index in call.outputs] or None
    threads = parse_sizes("--threads", call.threads) if call.threads else None
    group_size = parse_sizes("--group-size", call.group_size) if call.group_size else None
    memory = {int(slot): int(size) for slot, size in _pairs("--memory", call.threadgroup_memory)}
    library = compile_shader(
        source.text,
        name=source.name,
        include_dirs=source.include_dirs,
        defines=dict(source.defines),
    )
    name = call.kernel or _only_kernel(call.file, dir(library))
    kernel = library.specialize(name, _constants(call.constants))
    with ActiveCheck(report, outputs, nan):
        kernel(
            *arguments, threads=threads, group_size=group_size, threadgroup_memory=memory or None
        )


def _only_kernel(file: Path, names: Sequence[str]) -> str:
    if len(names) != 1:
        known = ", ".join(names) or "none"
        raise typer.BadParameter(f"{file} has {len(names)} kernels: pass --kernel, one of {known}")
    return names[0]


def _output(arguments: Sequence[object], index: int) -> object:
    if not 0 <= index < len(arguments) or not hasattr(arguments[index], "data_ptr"):
        raise typer.BadParameter(f"--output {index}: argument {index} is no tensor")
    return arguments[index]


def _constants(words: Sequence[str]) -> Mapping[int | str, Scalar]:
    values: dict[int | str, Scalar] = {}
    for name, text in _pairs("--constant", words):
        number = parse_number(text)
        if number is None:
            raise typer.BadParameter(f"--constant {name}={text}: expected a number, true or false")
        values[int(name) if name.isdigit() else name] = number
    return values


def _pairs(option: str, words: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [word.partition("=") for word in words]
    for (name, separator, value), word in zip(pairs, words, strict=True):
        if not (name and separator and value):
            raise typer.BadParameter(f"{option} {word}: expected NAME=VALUE")
    return [(name, value) for name, _, value in pairs]


def _publish(report: Report, files: Files, strict: bool) -> None:
    """Print for people (to stderr where stdout has a file), write for machines."""
    people = sys.stderr if files.to_stdout else sys.stdout
    print_report(report, people)
    for line in annotation_lines(report) if wanted() else ():
        print(line, file=people)
    if files.json:
        _write(files.json, json_text(report))
    if files.sarif:
        _write(files.sarif, sarif_text(report))
    if files.junit:
        _write(files.junit, junit_text(report, strict))


def _write(target: str, text: str) -> None:
    if target == _STDOUT:
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, encoding="utf-8")
