"""Apple's compiled kernels as a library: `load_metallib`."""

from __future__ import annotations

import os

from anymetal.air.archive import metallib_source
from anymetal.engines.compiler import Compiler
from anymetal.launch.shader import ShaderLibrary


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
