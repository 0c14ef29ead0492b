"""Sources go in, a shared library comes out; the compiler's words are in the error."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from anymetal.errors import ToolchainError
from anymetal.extension.toolchain import Toolchain

STANDIN = Path(__file__).parent / "standin"
RUNTIME = STANDIN / "runtime"
_TORCH = Path(torch.__file__).parent


class ExtensionError(ToolchainError):
    """An extension does not compile, link or load."""


def torch_includes() -> list[str]:
    return [f"-isystem{_TORCH / 'include'}", f"-isystem{_TORCH / 'include/torch/csrc/api/include'}"]


def compile_flags(toolchain: Toolchain) -> list[str]:
    """Nothing is optimised, and line numbers are kept: findings name the line of every call."""
    return [
        "-std=c++20",
        "-fPIC",
        "-O0",
        "-gline-tables-only",
        "-w",
        "-DNDEBUG",  # as torch is built: some of its classes have other members without it
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-I{STANDIN / 'include'}",
        f"-I{STANDIN / 'linux'}",
        *torch_includes(),
        *toolchain.flags(),
    ]


def link_flags(toolchain: Toolchain) -> list[str]:
    return [
        f"-L{_TORCH / 'lib'}",
        "-ltorch_cpu",
        "-lc10",
        f"-Wl,-rpath,{_TORCH / 'lib'}",
        *toolchain.libraries(),
    ]


def build_library(
    toolchain: Toolchain,
    sources: Sequence[Path],
    output: Path,
    *,
    includes: Sequence[str] = (),
    links: Sequence[str] = (),
) -> None:
    """Compile the sources side by side and link them. Undefined symbols are errors."""
    with tempfile.TemporaryDirectory(prefix="anymetal-extension-") as folder:
        objects = [Path(folder) / f"{number}.o" for number in range(len(sources))]

        def compile_one(pair: tuple[Path, Path]) -> None:
            source, target = pair
            language = "objective-c++" if source.suffix == ".mm" else "c++"
            run(
                [
                    *(toolchain.compiler, "-x", language, *compile_flags(toolchain), *includes),
                    *("-c", str(source), "-o", str(target)),
                ],
                f"{source.name} does not compile",
            )

        with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
            list(workers.map(compile_one, zip(sources, objects, strict=True)))
        run(
            [
                *(toolchain.compiler, "-shared", "-Wl,--no-undefined", "-o", str(output)),
                *(*map(str, objects), *links, *link_flags(toolchain), "-ldl"),
            ],
            "it does not link",
        )


def run(command: Sequence[str], failure: str, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        lines = done.stderr.splitlines()
        errors = [line for line in lines if "error" in line or "undefined" in line] or lines[-5:]
        raise ExtensionError("\n".join([f"{failure}:", *errors[:20]]))
