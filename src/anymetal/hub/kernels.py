"""The kernels of a project on the Hub, compiled and called like those of any library."""

from __future__ import annotations

import os
from pathlib import Path

from anymetal.errors import BuildFileError
from anymetal.hub.build_file import BuildFile, read_build
from anymetal.launch.kernel import Kernel
from anymetal.launch.shader import ShaderLibrary, compile_shader


class HubKernels:
    """The kernels of all Metal files that a build.toml lists, as attributes."""

    def __init__(self, build: BuildFile) -> None:
        self.build = build
        self._libraries: dict[str, ShaderLibrary] = {}  # by the kernel's name
        for source in build.sources:
            self._add(source)

    def _add(self, source: Path) -> None:
        library = compile_shader(
            source.read_text(encoding="utf-8"),
            name=str(source),
            include_dirs=[source.parent, *self.build.include_dirs(source)],
        )
        for name in dir(library):
            if name in self._libraries:
                raise BuildFileError(
                    f"{self.build.path}: two of its Metal files have a kernel {name!r}, the second"
                    f" is {source}; one library cannot hold both"
                )
            self._libraries[name] = library

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("__") or name in ("build", "_libraries"):
            raise AttributeError(name)
        return self.library(name).specialize(name)

    def library(self, kernel: str) -> ShaderLibrary:
        """The library that has a kernel, for its function constants."""
        if kernel not in self._libraries:
            known = ", ".join(self._libraries) or "none"
            raise AttributeError(f"{self.build.name} has no kernel {kernel!r}; it has {known}")
        return self._libraries[kernel]

    def __dir__(self) -> list[str]:
        return list(self._libraries)

    def __repr__(self) -> str:
        return f"<kernels of {self.build.name}: {', '.join(self._libraries)}>"


def load(path: str | os.PathLike[str]) -> HubKernels:
    """The kernels of a project: its folder, or its build.toml. Raises BuildFileError for a file
    with mistakes, and SyntaxError for a source that does not compile."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"hub.load: path is {path!r}, expected that of a folder or a build.toml")
    return HubKernels(read_build(Path(path)))
