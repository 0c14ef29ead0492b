"""Cases in, a verdict on each out. A case that fails is never skipped.

Each case is judged on the reference engine, where every thread runs by itself and a race shows. It
runs again as it runs for users, with equal results, and a third time checked.
"""

from __future__ import annotations

import functools
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import torch
from rich.progress import track

import anymetal
import conformance.cases  # noqa: F401  (fills the list of cases)
from anymetal import settings
from anymetal.checker.finding import Finding
from anymetal.cli.explain import explain
from anymetal.engines.compiler import Compiler
from anymetal.errors import ToolchainError
from anymetal.nouns import Source
from conformance.case import Case, Launch
from conformance.lint import C10_KERNELS
from conformance.wheel import Sources

REFERENCE = "coroutine"


@dataclass(frozen=True)
class Outcome:
    """What a run showed: the largest error of all results, and whose fault it is."""

    case: Case
    verdict: str
    error: float | None
    detail: str
    engines: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def failed(self) -> bool:
        return self.verdict in ("our fault", "unexpected")


def run_all(cases: list[Case], sources: Sources) -> list[Outcome]:
    files = {file.name: file for file in (*sources.files, C10_KERNELS)}
    outcomes = []
    for case in track(cases, "running, on both engines and checked"):
        outcome = judge(case, files)
        outcome = replace(outcome, findings=found_in(outcome, files))
        outcomes.append(compared(outcome, files))
    return outcomes


def compared(outcome: Outcome, files: dict[str, Path]) -> Outcome:
    """The same case on the engine that users get: results must be equal, bit by bit.

    Only what is left open may differ: a kernel that the checker finds a race in.
    """
    if outcome.error is None:
        return outcome
    case, file = outcome.case, files[outcome.case.file]
    row = explain(compiler_of(file), case.kernel)
    if row["engine"] == REFERENCE:
        return replace(outcome, engines=f"{REFERENCE}: {row['why']}")
    races = any("race" in finding.kind for finding in outcome.findings)
    return judge_engines(outcome, different_on_engines(case, file), races=races)


def judge_engines(outcome: Outcome, different: list[str], *, races: bool) -> Outcome:
    if not different:
        return replace(outcome, engines="both, equal")
    if races or outcome.case.known_wrong is not None:
        return replace(outcome, engines="both, race")
    detail = f"{', '.join(different)}: engines differ"
    return replace(outcome, engines="both, DIFFERENT", verdict="our fault", detail=detail)


@functools.cache
def compiler_of(file: Path) -> Compiler:
    return Compiler(Source(file.read_text(), name=file.name))


def different_on_engines(case: Case, file: Path) -> list[str]:
    """The results that are not the same bytes on both engines."""
    results: list[list[bytes]] = []
    for engine in ("auto", REFERENCE):
        launch = make(case)
        start(case, launch, file, engine)
        results.append([bytes_of(check.got()) for check in launch.checks])
    names = [check.what for check in launch.checks]
    return [n for n, first, second in zip(names, *results, strict=True) if first != second]


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


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
def library(file: Path, engine: str) -> anymetal.ShaderLibrary:
    """Kernels are compiled when they are asked for, by the engine that is set then."""
    return anymetal.compile_shader(file.read_text(), name=file.name)


def judge(case: Case, files: dict[str, Path]) -> Outcome:
    launch = make(case)
    if case.file not in files:
        return Outcome(case, "unexpected", None, f"the wheel has no {case.file}")
    try:
        start(case, launch, files[case.file], REFERENCE)
    except ToolchainError:
        raise
    except Exception as error:
        return judge_refusal(case, error)
    errors = {check.what: check.error() for check in launch.checks}
    return judge_errors(case, errors)


def start(case: Case, launch: Launch, file: Path, engine: str = "auto") -> None:
    with mock.patch.dict(os.environ, {settings.ENGINE.variable: engine}):
        kernel = getattr(library(file, engine), case.kernel)
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
