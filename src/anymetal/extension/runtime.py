"""The library of stand-ins: Foundation, Metal and torch's stream, built once and kept."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock

from anymetal.extension.compiling import RUNTIME, STANDIN, build_library, compile_flags
from anymetal.extension.toolchain import Toolchain
from anymetal.store.cache import Store, digest_of
from anymetal.store.fingerprint import fingerprint


def runtime_key(toolchain: Toolchain) -> str:
    parts = fingerprint("torch", STANDIN)
    return digest_of(parts, toolchain.version, " ".join(compile_flags(toolchain)))


def runtime_library(store: Store, toolchain: Toolchain) -> Path:
    """The library for this torch and compiler, built if there is none yet."""
    key = runtime_key(toolchain)
    sources = sorted([*RUNTIME.glob("*.mm"), *RUNTIME.glob("*.cpp")])

    def build(path: Path) -> None:
        name = f"-Wl,-soname,libanymetal-metal-{key[:16]}.so"
        build_library(toolchain, sources, path, links=[name])

    with FileLock(store.directory / f"extension-{key[:16]}.lock"):
        return store.file("extension", key, build)
