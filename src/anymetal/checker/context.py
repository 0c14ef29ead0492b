"""Which check is on: `with check() as report:` or ANYMETAL_CHECK=1 for the whole process.

`active()` is asked on every launch. A kernel call belongs to the innermost check that its own
thread (or task) has entered; a thread that has entered none, such as one of autograd's, belongs to
the one entered last anywhere. Findings go to that check alone, so a test can look at a defect on
purpose while a check around it stays clean.

With ANYMETAL_CHECK=1 each error is printed to stderr when it is found, and when the process ends
how often each was seen, the warnings and a summary. The exit status stays the program's own:
`anymetal check` is there to set it.
"""

from __future__ import annotations

import atexit
import copy
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anymetal import settings
from anymetal.checker.annotations import annotation_lines, wanted
from anymetal.checker.inline_source import caller
from anymetal.checker.project import project_options
from anymetal.checker.report import Report, Severities, checked_severities
from anymetal.checker.step_summary import add_to_step_summary
from anymetal.checker.terminal import print_findings, print_rest
from anymetal.errors import CheckError, MissingArgument

if TYPE_CHECKING:
    from anymetal.checker.finding import Finding
    from anymetal.nouns import Position

Outputs = Sequence[Any] | None


class ActiveCheck:
    """A check that is on: where findings go, and what was asked for.

    `outputs` is None when a buffer written in part is a warning, the tensors for which it is an
    error, or () when it is nothing. `nan` asks where the first NaN or infinity was born.
    `level` is how far checked kernels are optimised; None leaves it to the setting. An object is
    entered once. A launch gets a copy that knows the line it was `called_here` from.
    """

    caller: Position | None = None
    test: str | None = None

    def __init__(
        self,
        report: Report,
        outputs: Outputs = None,
        nan: bool = False,
        level: int | None = None,
    ) -> None:
        self.report = report
        self.level = level
        self.outputs = _checked_outputs(outputs)
        self.nan = nan
        self._around: ActiveCheck | None = None

    def called_here(self) -> ActiveCheck:
        """The check as one launch sees it, which may run later than it is called."""
        launch = copy.copy(self)
        launch.caller = caller()
        launch.test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0] or None
        return launch

    def __enter__(self) -> ActiveCheck:
        self._around = _mine.get()
        _mine.set(self)
        with _lock:
            entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        for wait in _waits:
            wait()
        with _lock:
            entered.remove(self)
        # Not ContextVar.reset: a fixture or a task may leave in another context than it entered.
        if _mine.get() is self:
            _mine.set(self._around)


class Check:
    """What `check()` returns: entered, it gives the report of the calls that follow."""

    def __init__(
        self, outputs: Outputs, nan: bool, severity: Severities | None, raise_on_error: bool
    ) -> None:
        for name, flag in (("nan", nan), ("raise_on_error", raise_on_error)):
            if not isinstance(flag, bool):
                raise TypeError(f"check: {name} is {flag!r}, expected True or False")
        self._outputs = _checked_outputs(outputs)
        self._nan = nan
        self._severity = checked_severities(severity)
        self._raise_on_error = raise_on_error
        self.entered: list[ActiveCheck] = []

    def __enter__(self) -> Report:
        current = ActiveCheck(Report(self._severity), self._outputs, self._nan)
        self.entered.append(current.__enter__())
        return current.report

    def __exit__(self, kind: object, *rest: object) -> None:
        current = self.entered.pop()
        current.__exit__(kind, *rest)
        if self._raise_on_error and kind is None and current.report.errors:
            raise CheckError(current.report)


def check(
    *,
    outputs: Outputs = None,
    nan: bool = False,
    severity: Severities | None = None,
    raise_on_error: bool = False,
) -> Check:
    """Run every kernel call inside checked.

    ```python
    import anymetal
    import torch

    lib = anymetal.compile_shader(
        "kernel void twice(device float* x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }"
    )
    x = torch.ones(100)
    with anymetal.check() as report:
        lib.twice(x, threads=101)
    assert report.findings[0].kind == "out_of_bounds"
    ```

    `outputs`: tensors that a launch must write completely; None makes a part left out a warning,
    () says nothing about it. `nan`: also look for the first NaN or infinity. `severity`: what a
    kind of finding counts as, for example {"uninitialised": "error", "misaligned": "off"}.
    `raise_on_error`: raise CheckError at the end of the block where there are errors.
    """
    return Check(outputs, nan, severity, raise_on_error)


_lock = threading.Lock()
entered: list[ActiveCheck] = []
_waits: list[Callable[[], None]] = []
_mine: ContextVar[ActiveCheck | None] = ContextVar("anymetal check", default=None)


def wait_before_leaving(wait: Callable[[], None]) -> None:
    """Calls `wait` where a check ends: launches that are queued until then belong to it."""
    _waits.append(wait)


def active() -> ActiveCheck | None:
    """The check that a kernel call made here and now belongs to, or None."""
    return _innermost() if entered else None


def _innermost() -> ActiveCheck | None:
    with _lock:
        current = _mine.get()
        # A task started inside a check can outlive it.
        while current is not None and current not in entered:
            current = current._around
        return current or (entered[-1] if entered else None)


def report_refused(check: ActiveCheck, kernel: str, error: Exception) -> None:
    """A launch that asks for more than an Apple GPU has, or lacks arguments; it does not run."""
    from anymetal.checker.finding import Finding, Launched, Place  # noqa: PLC0415  (rarely needed)

    place = Place(getattr(error, "position", None), "", "launch", None, None, None)
    launch = Launched(sum(check.report.launches.values()) + 1, check.caller, check.test)
    kind = "argument_size" if isinstance(error, MissingArgument) else "limits"
    check.report.add(Finding(kind, "error", kernel, str(error), place, launch=launch))


def _checked_outputs(outputs: Outputs) -> tuple[Any, ...] | None:
    if outputs is None:
        return None
    if hasattr(outputs, "data_ptr"):
        raise TypeError(
            "outputs is one tensor, expected a sequence of them: write outputs=[tensor]"
        )
    if not isinstance(outputs, Iterable):
        raise TypeError(f"outputs is {outputs!r}, expected a sequence of tensors")
    tensors = tuple(outputs)
    for tensor in tensors:
        if not hasattr(tensor, "data_ptr"):
            raise TypeError(f"outputs holds {type(tensor).__name__}, expected tensors")
    return tensors


def check_process() -> Report:
    """Check every kernel call from now on, and print what is found to stderr."""
    options = project_options()
    report = Report(options.severity, listener=_print_error)
    ActiveCheck(report, nan=options.nan).__enter__()
    atexit.register(_print_rest, report, os.getpid())
    return report


def _print_error(finding: Finding) -> None:
    if finding.severity == "error":
        # How often is known at the end.
        print_findings([replace(finding, count=1)], sys.stderr)


def _print_rest(report: Report, process: int) -> None:
    """What is known at the end. A forked child leaves it to the process that started it."""
    if os.getpid() != process or not (report.launches or report.findings):
        return
    print_rest(report, sys.stderr)
    for line in annotation_lines(report) if wanted() else ():
        print(line, file=sys.stderr)
    add_to_step_summary(report)


if settings.CHECK.value():
    check_process()
