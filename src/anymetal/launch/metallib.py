"""Apple's compiled kernels as a library: `load_metallib`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from anymetal.air.archive import pick
from anymetal.engines.compiler import Compiler
from anymetal.launch.shader import ShaderLibrary
from anymetal.nouns import MetallibSource


def load_metallib(
    source: str | os.PathLike[str] | bytes | bytearray, *, library: str | int | None = None
) -> ShaderLibrary:
    """The kernels of a metallib, given by its path or its bytes.

    Takes what `torch.mps.load_metallib` takes, and files that hold metallibs: a wheel, a dynamic
    library. Where there are several, `library` is the name or the number of one. Kernels are
    called, checked and profiled like those of `compile_shader`. Raises MetallibError where the file
    is damaged, or where a kernel, when it is asked for, uses what anymetal does not know.
    """
    found = metallib_source(source, None if library is None else str(library))
    return ShaderLibrary(Compiler(found))


def metallib_source(
    source: str | os.PathLike[str] | bytes | bytearray, library: str | None
) -> MetallibSource:
    """The one metallib that is meant, as a Source."""
    if isinstance(source, bytes | bytearray):
        name, data = "<metallib>", bytes(source)
    elif isinstance(source, str | os.PathLike):
        name, data = str(source), Path(source).read_bytes()
    else:
        raise TypeError(
            f"load_metallib takes a path or bytes, not {type(source).__name__}: {source!r:.60}"
        )
    found = pick(data, name, library)
    shown = name if found.name == name else f"{name}::{found.name}"
    return MetallibSource(hashlib.sha256(found.data).hexdigest(), name=shown, data=found.data)
