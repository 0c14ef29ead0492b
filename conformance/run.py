"""Cases in, a verdict on each out. A case that fails is never skipped."""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch

import anymetal
import conformance.cases  # noqa: F401  (fills the list of cases)
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

    @property
    def failed(self) -> bool:
        return self.verdict in ("our fault", "unexpected")


def run_all(cases: list[Case], sources: Sources) -> list[Outcome]:
    files = {file.name: file for file in (*sources.files, C10_KERNELS)}
    return [judge(case, files) for case in cases]


@functools.cache
def library(file: Path) -> anymetal.ShaderLibrary:
    return anymetal.compile_shader(file.read_text(), name=file.name)


def judge(case: Case, files: dict[str, Path]) -> Outcome:
    # Its own seed, so that a case sees the same numbers whichever others run.
    torch.manual_seed(zlib.crc32(f"{case.kernel} {case.note}".encode()))
    launch = case.make()
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
