"""Metal sources in, for every kernel in them whether it compiles and how long it took out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

import anymetal
from anymetal.errors import ToolchainError

C10_HEADERS = Path(torch.__file__).parent / "include" / "c10" / "metal"
C10_KERNELS = Path(__file__).parent / "c10_kernels.metal"
# A pipeline that needs more than the 32 KiB of a threadgroup compiles on a Mac too, but cannot be
# created there; what is refused for that is the kernel's own fault.
OWN_FAULT = "32768"


@dataclass(frozen=True)
class Verdict:
    """One kernel: None, or why it does not compile."""

    kernel: str
    complaint: str | None

    @property
    def own_fault(self) -> bool:
        return self.complaint is not None and OWN_FAULT in self.complaint


@dataclass(frozen=True)
class FileReport:
    """One file and its kernels; `complaint` when the file as a whole is refused."""

    file: str
    verdicts: tuple[Verdict, ...]
    seconds: float
    complaint: str | None = None

    @property
    def compiled(self) -> int:
        return sum(verdict.complaint is None for verdict in self.verdicts)

    @property
    def faults(self) -> list[str]:
        """What is wrong on our side."""
        whole = [f"{self.file}: {self.complaint}"] if self.complaint else []
        return whole + [
            f"{self.file}: {verdict.kernel}: {verdict.complaint}"
            for verdict in self.verdicts
            if verdict.complaint and not verdict.own_fault
        ]


def lint(name: str, text: str, pool: ThreadPoolExecutor) -> FileReport:
    start = time.perf_counter()
    try:
        library = anymetal.compile_shader(text, name=name)
        kernels = list(dir(library))
    except ToolchainError:
        raise
    except (SyntaxError, RuntimeError) as error:
        return FileReport(name, (), time.perf_counter() - start, str(error))
    verdicts = tuple(pool.map(lambda kernel: compile_kernel(library, kernel), kernels))
    return FileReport(name, verdicts, time.perf_counter() - start)


def compile_kernel(library: object, kernel: str) -> Verdict:
    try:
        getattr(library, kernel)
    except ToolchainError:
        raise
    except (SyntaxError, RuntimeError, ValueError) as error:
        return Verdict(kernel, str(error))
    return Verdict(kernel, None)


def lint_files(files: Iterable[Path]) -> list[FileReport]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [lint(file.name, file.read_text(), pool) for file in files]


def lint_c10() -> list[FileReport]:
    """Each header by itself, then kernels that instantiate what is in them."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = [
            lint(f"c10/metal/{header.name}", alone(header.name), pool)
            for header in sorted(C10_HEADERS.glob("*.h"))
        ]
        return [*reports, lint(C10_KERNELS.name, C10_KERNELS.read_text(), pool)]


def alone(header: str) -> str:
    """A source that has nothing but the header, and a kernel so that there is code to compile."""
    return (
        "#include <metal_stdlib>\n"
        f"#include <c10/metal/{header}>\n"
        "kernel void includes_it(device int* out [[buffer(0)]]) { out[0] = 1; }\n"
    )
