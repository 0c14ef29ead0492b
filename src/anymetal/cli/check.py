"""`anymetal check`: runs a program, or one kernel of a file, with every kernel call checked."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from anymetal import settings
from anymetal.checker.annotations import annotation_lines, wanted
from anymetal.checker.context import ActiveCheck
from anymetal.checker.json_report import json_text
from anymetal.checker.junit import junit_text
from anymetal.checker.report import Report
from anymetal.checker.sarif import sarif_text
from anymetal.checker.terminal import print_report
from anymetal.cli.files import Options, source_of
from anymetal.errors import AnymetalError
from anymetal.nouns import Scalar

_USAGE = 2
_INTERRUPTED = 130
_STDOUT = "-"


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
    from anymetal.cli.kernel_arguments import parse_arguments, parse_sizes  # noqa: PLC0415
    from anymetal.launch.shader import compile_shader  # noqa: PLC0415

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
    from anymetal.cli.kernel_arguments import parse_number  # noqa: PLC0415

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
