"""metalcore's Objective-C++, 6,953 lines: read against the stand-in headers, then built and run.

Its source is fetched, never kept here. What is run are a few of its functions, under the checker:
they print what the extension does against the rules of torch's stream, as a demonstration.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import anymetal
from anymetal.checker.finding import Finding
from anymetal.extension import loading
from anymetal.extension.compiling import build_library, compile_flags
from anymetal.extension.runtime import runtime_library
from anymetal.extension.toolchain import Toolchain, find_toolchain
from anymetal.store.cache import default_store
from conformance.wheel import FOLDER, PACKAGE

_SOURCE = "src/metalcore/native/core_mps.mm"
_MODULE = "metalcore_backend"
# Declared in the stand-ins for the type checker only; none of the functions below needs them.
_MATRIX_CLASSES = """
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>
@implementation MPSKernel
@end
@implementation MPSMatrixDescriptor
@end
@implementation MPSMatrix
@end
@implementation MPSMatrixMultiplication
@end
"""


@dataclass(frozen=True)
class HostReport:
    """The lines of the source, what does not compile of it, and what its functions do wrong."""

    lines: int
    errors: tuple[str, ...]
    findings: tuple[Finding, ...]
    failures: tuple[str, ...]


def examine(folder: Path = FOLDER) -> HostReport:
    source = fetch(folder)
    toolchain = find_toolchain()
    errors = type_errors(toolchain, source)
    lines = len(source.read_text().splitlines())
    if errors:
        return HostReport(lines, tuple(errors), (), ())
    return HostReport(lines, (), *run(toolchain, source))


def fetch(folder: Path) -> Path:
    """The newest source distribution, unpacked."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
    command += ["--no-build-isolation", f"--dest={folder}", PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = sorted(folder.glob(f"{PACKAGE}-*.tar.gz"))
    if not archives:
        raise SystemExit(f"no source of {PACKAGE} to be had:\n{done.stderr.strip()}")
    with tarfile.open(archives[-1]) as archive:
        archive.extractall(folder, filter="data")
    return folder / archives[-1].name.removesuffix(".tar.gz") / _SOURCE


def includes() -> list[str]:
    return [f"-I{sysconfig.get_paths()['include']}", f"-DTORCH_EXTENSION_NAME={_MODULE}"]


def type_errors(toolchain: Toolchain, source: Path) -> list[str]:
    command = [toolchain.compiler, "-x", "objective-c++", *compile_flags(toolchain), *includes()]
    command += ["-fsyntax-only", "-ferror-limit=0", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if "error:" in line]


def run(toolchain: Toolchain, source: Path) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Findings of all calls, and the messages of those that a Mac would not survive."""
    module = load(toolchain, source)
    failures = []
    with anymetal.check() as report:
        for name, call in CALLS.items():
            try:
                call(module)
            except RuntimeError as error:
                failures.append(f"{name}: {str(error).splitlines()[0]}")
    return report.findings, tuple(failures)


def load(toolchain: Toolchain, source: Path) -> Any:
    """Its module, with the kernels' source where it looks for their library."""
    place = source.parents[3] / "built"
    (place / "native").mkdir(parents=True, exist_ok=True)
    shutil.copy(source.parent / "core_kernels.metal", place / "native" / "core_kernels.metallib")
    classes = place / "matrix_classes.mm"
    classes.write_text(_MATRIX_CLASSES)
    runtime = runtime_library(default_store(), toolchain)
    python = f"{Path(torch.__file__).parent / 'lib' / 'libtorch_python.so'}"
    library = place / f"{_MODULE}.so"
    links = [str(runtime), python, "-Wl,--unresolved-symbols=ignore-all"]
    build_library(toolchain, [source, classes], library, includes=includes(), links=links)
    loading.prepare(runtime).symbols.add(library.resolve(), source.parent.resolve())
    spec = importlib.util.spec_from_file_location(_MODULE, library.resolve())
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).to("mps")


CALLS: dict[str, Callable[[Any], object]] = {
    "gelu_fwd": lambda module: module.gelu_fwd(_random(4, 64)),
    "silu_fwd": lambda module: module.silu_fwd(_random(4, 64)),
    "rmsnorm_fwd": lambda module: module.rmsnorm_fwd(_random(4, 64), _random(64), 1e-5),
    "layernorm_fwd": lambda m: m.layernorm_fwd(_random(4, 64), _random(64), _random(64), 1e-5),
    "fused_softmax": lambda module: module.fused_softmax(_random(4, 64), -1),
    "cholesky_batched": lambda module: module.cholesky_batched(torch.eye(8).to("mps")[None]),
    "geqr2": lambda module: module.geqr2(_random(16, 8)),
}
