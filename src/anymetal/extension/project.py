"""What an extension consists of, read from its folder: the sources, the kernels, its package."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from anymetal.extension.compiling import ExtensionError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EMBEDDER = "embed_kernels.py"


@dataclass(frozen=True)
class Project:
    """An extension. `embedder` writes its kernels into a header, where it has such a script."""

    name: str
    folder: Path
    sources: tuple[Path, ...]
    kernels: tuple[Path, ...]
    embedder: Path | None

    def files(self) -> list[Path]:
        """All that decides what its library is."""
        headers = list(self.folder.glob("csrc/*.h")) if self.embedder else []
        embedder = [self.embedder] if self.embedder else []
        return sorted([*self.sources, *self.kernels, *headers, *embedder])

    def write_kernels(self, folder: Path) -> list[str]:
        """The header with the kernels, as the project's own script writes it; returns includes."""
        if self.embedder is None:
            return []
        command = [sys.executable, str(self.embedder), str(folder / "embedded_kernels.h")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ExtensionError(f"{self.embedder} fails:\n{done.stderr.strip()}")
        return [f"-I{folder}"]


def read_project(place: Path) -> Project:
    """A folder with a pyproject.toml, or a single `.mm`."""
    place = place.resolve()
    if place.suffix == ".mm" and place.is_file():
        return Project(place.stem, place.parent, (place,), (), None)
    description = place / "pyproject.toml"
    if not description.is_file():
        raise ExtensionError(
            f"{place} is no extension: it is no .mm file and has no pyproject.toml"
        )
    name = tomllib.loads(description.read_text(encoding="utf-8"))["project"]["name"]
    package = name.replace("-", "_")
    sources = tuple(sorted([*place.glob("csrc/*.mm"), *place.glob("csrc/*.cpp")]))
    if not sources:
        raise ExtensionError(f"{place} has no sources: csrc/*.mm")
    embedder = place / EMBEDDER
    return Project(
        name=package,
        folder=place,
        sources=sources,
        kernels=tuple(sorted(place.glob(f"{package}/kernels/*.metal"))),
        embedder=embedder if embedder.is_file() else None,
    )
