"""Cases in, a verdict on each out. A case that fails is never skipped."""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.progress import track

import anymetal
import conformance.cases  # noqa: F401  (fills the list of cases)
from anymetal.checker.finding import Finding
from anymetal.errors import ToolchainError
from conformance.case import Case, Launch
from conformance.lint import C10_KERNELS
from conformance.wheel import Sources


@dataclass(frozen=True)
class Outcome:
    """What a run showed: the largest error of all results, and whose fault it is."""

    case: Case
    verdict: str
    error: float | None
    detail: str
    findings: tuple[Finding, ...] = ()

    @property
    def failed(self) -> bool:
        return self.verdict in ("our fault", "unexpected")


def run_all(cases: list[Case], sources: Sources) -> list[Outcome]:
    files = {file.name: file for file in (*sources.files, C10_KERNELS)}
    outcomes = (judge(case, files) for case in track(cases, "running, plain and checked"))
    return [replace(outcome, findings=found_in(outcome, files)) for outcome in outcomes]


def found_in(outcome: Outcome, files: dict[str, Path]) -> tuple[Finding, ...]:
    """What the checker says of a case that ran; buffers written in part are the case's choice."""
    if outcome.error is None:
        return ()
    case = outcome.case
    launch = make(case)
    with anymetal.check(outputs=()) as report:
        start(case, launch, files[case.file])
    return report.findings


def make(case: Case) -> Launch:
    """A case's data, from a seed of its own: the same numbers whichever other cases run."""
    torch.manual_seed(zlib.crc32(f"{case.kernel} {case.note}".encode()))
    return case.make()


@functools.cache
def library(file: Path) -> anymetal.ShaderLibrary:
    return anymetal.compile_shader(file.read_text(), name=file.name)


def judge(case: Case, files: dict[str, Path]) -> Outcome:
    launch = make(case)
    if case.file not in files:
        return Outcome(case, "unexpected", None, f"the wheel has no {case.file}")
    try:
        start(case, launch, files[case.file])
    except ToolchainError:
        raise
    except Exception as error:
        return judge_refusal(case, error)
    errors = {check.what: check.error() for check in launch.checks}
    return judge_errors(case, errors)


def start(case: Case, launch: Launch, file: Path) -> None:
    kernel = getattr(library(file), case.kernel)
    kernel(
        *launch.arguments,
        threads=tuple(launch.threads),
        group_size=tuple(launch.group_size),
        threadgroup_memory=launch.padded_memory() or None,
    )


def judge_refusal(case: Case, error: Exception) -> Outcome:
    message = f"{type(error).__name__}: {error}"
    if case.refused is not None and case.refused in message:
        return Outcome(case, "refused", None, message.splitlines()[0])
    return Outcome(case, "our fault", None, message)


def judge_errors(case: Case, errors: dict[str, float]) -> Outcome:
    worst = max(errors, key=lambda what: errors[what])
    error = errors[worst]
    right = error <= case.tolerance.limit
    if case.refused is not None:
        return Outcome(case, "unexpected", error, f"ran, but should be refused: {case.refused}")
    if case.known_wrong is None:
        verdict = "right" if right else "our fault"
        return Outcome(case, verdict, error, "" if right else f"{worst} is off by {error:.1e}")
    if right:
        return Outcome(case, "unexpected", error, f"came out right, though {case.known_wrong}")
    return Outcome(case, "kernel's fault", error, case.known_wrong)
