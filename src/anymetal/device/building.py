"""The C++ sources go in; the shared library for this torch comes out, built once and kept."""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from filelock import FileLock
from rich.console import Console

from anymetal import settings
from anymetal.errors import ToolchainError
from anymetal.store.cache import Store, digest_of
from anymetal.store.fingerprint import fingerprint

SOURCES = Path(__file__).parent / "native"

_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-w", "-fvisibility=hidden")
_INSTALL = (
    "Install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++;"
    f" Alpine: apk add g++), or name one in {settings.CXX.variable}."
)


class BuildError(ToolchainError):
    """The library of the device does not compile against this torch."""


def library(store: Store) -> Path:
    """The library for this torch and compiler, built if there is none yet."""
    compiler = find_compiler()
    key = library_key(compiler)

    def build(path: Path) -> None:
        with _progress():
            compile_library(compiler, path)

    # One process builds, the others wait for it: a build takes both processors for half a minute.
    with FileLock(store.directory / f"device-{key[:16]}.lock"):
        return store.file("device", key, build)


def find_compiler() -> str:
    """The C++ compiler to use: ANYMETAL_CXX, or the first of the usual names."""
    wanted = settings.CXX.value()
    names = (wanted,) if wanted else _COMPILERS
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    if wanted:
        raise ToolchainError(f"{settings.CXX.variable}={wanted}: no such program. {_INSTALL}")
    raise ToolchainError(
        "The virtual mps device is built with a C++ compiler on first use, and none of"
        f" {', '.join(_COMPILERS)} is on this machine. {_INSTALL}"
    )


def library_key(compiler: str) -> str:
    """A digest of all that decides what the library is: torch, the compiler, the sources."""
    parts = fingerprint("torch", SOURCES)
    return digest_of(parts, _version(compiler), " ".join(_FLAGS), _abi())


def compile_library(compiler: str, path: Path) -> None:
    """Run the compiler; its words are in the error when it fails."""
    home = Path(torch.__file__).parent
    command = [
        compiler,
        *_FLAGS,
        f"-D_GLIBCXX_USE_CXX11_ABI={_abi()}",
        f"-I{home / 'include'}",
        f"-I{home / 'include/torch/csrc/api/include'}",
        str(SOURCES / "library.cpp"),
        "-o",
        str(path),
        f"-L{home / 'lib'}",
        "-ltorch_cpu",
        "-lc10",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line][:5]
        raise BuildError(
            f"The virtual mps device does not compile against torch {torch.__version__} with"
            f" {_version(compiler)}:\n" + "\n".join(errors or done.stderr.splitlines()[-5:])
        )


@functools.cache
def _version(compiler: str) -> str:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise ToolchainError(f"{compiler} --version fails. {_INSTALL}")
    return lines[0]


def _abi() -> str:
    return str(int(torch.compiled_with_cxx11_abi()))


@contextlib.contextmanager
def _progress() -> Iterator[None]:
    """Say what takes so long, on stderr: stdout is the program's."""
    text = f"building the virtual mps device for torch {torch.__version__} (once)"
    console = Console(stderr=True)
    if sys.stderr.isatty():
        with console.status(text):
            yield
    else:
        console.print(f"anymetal: {text}", highlight=False)
        yield
