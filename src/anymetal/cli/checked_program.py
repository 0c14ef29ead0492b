"""A Python program or module, run as Python would run it and with its kernel calls checked."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from anymetal import settings
from anymetal.checker.context import ActiveCheck
from anymetal.checker.report import Report
from anymetal.device.enabling import enable, is_enabled

_INTERRUPTED = 130
_NO_MPS = (
    "anymetal: this program asks for the mps device, and torch has none here."
    " `anymetal check --mps` gives it a virtual one."
)


@dataclass(frozen=True)
class Program:
    """What to run: a file, or with `is_module` the name of a module, and its arguments."""

    target: str
    arguments: Sequence[str]
    is_module: bool = False
    mps: bool = False


def run_program(program: Program, report: Report, nan: bool) -> int:
    """Run the program with its kernel calls checked; returns the status it would exit with."""
    return run_within(program, ActiveCheck(report, nan=nan), {settings.CHECK.variable: "1"})


def run_within(
    program: Program, around: AbstractContextManager[object], variables: Mapping[str, str]
) -> int:
    """Run the program inside a context, with environment variables for those that it starts."""
    with _as_program(program, variables), _asked_for_mps() as asked, around:
        status, error = _run(program)
    sys.stdout.flush()
    if error is not None:
        _print_trace(error)
    refused = "mps" in str(error or "").lower() and not torch.backends.mps.is_available()
    if asked or refused:
        print(_NO_MPS, file=sys.stderr)
    return status


@contextmanager
def _as_program(program: Program, variables: Mapping[str, str]) -> Iterator[None]:
    """What a program finds when it starts: its arguments, its directory in the search path, and the
    virtual device where it is wanted.

    Programs that this one starts in turn print what they find; their status is not known here.
    """
    argv, path, environment = sys.argv, list(sys.path), dict(os.environ)
    sys.argv = [program.target, *program.arguments]
    place = Path.cwd() if program.is_module else Path(program.target).absolute().parent
    sys.path.insert(0, str(place))
    os.environ |= variables
    if program.mps:
        os.environ |= {settings.DEVICE.variable: "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
        if not is_enabled() and not torch.backends.mps.is_available():
            enable()
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        for name in os.environ.keys() | environment.keys():
            os.environ.pop(name, None)
            if name in environment:
                os.environ[name] = environment[name]


@contextmanager
def _asked_for_mps() -> Iterator[list[bool]]:
    """A list that has something in it when the program has asked whether there is an mps device,
    and there was none."""
    before, asked = torch.backends.mps.is_available, list[bool]()

    def is_available() -> bool:
        if not before():
            asked.append(True)
        return before()

    torch.backends.mps.is_available = is_available  # type: ignore[assignment]
    try:
        yield asked
    finally:
        torch.backends.mps.is_available = before


def _run(program: Program) -> tuple[int, Exception | None]:
    """What `python SCRIPT` or `python -m MODULE` would exit with, and the error that ended it."""
    try:
        if program.is_module:
            runpy.run_module(program.target, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program.target, run_name="__main__")
    except SystemExit as exit_request:
        return _status(exit_request.code), None
    except KeyboardInterrupt:
        return _INTERRUPTED, None
    except Exception as error:
        return 1, error
    return 0, None


def _status(code: object) -> int:
    """The status of `sys.exit(code)`: a message goes to stderr and counts as 1."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _print_trace(error: Exception) -> None:
    """The traceback from the program's first line on, without the frames that started it."""
    trace, ours = error.__traceback__, (__file__, "<frozen runpy>", runpy.__file__)
    while trace and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
