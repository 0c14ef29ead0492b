"""A build.toml of kernel-builder goes in; the Metal sources it lists come out, or what is wrong.

    [general]
    name = "activation"
    backends = ["cuda", "metal"]

    [kernel.activation_metal]
    backend = "metal"
    depends = ["torch"]
    include = ["include"]                            # from the project's folder
    src = ["activation_metal/activation.metal", "activation_metal/activation.mm"]

kernel-builder compiles every `.metal` file of a section by itself, with the section's `include`
directories, into one library. Sections of other backends, and files that are not Metal, are left
alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anymetal.errors import BuildFileError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "build.toml"
_METAL = "metal"


@dataclass(frozen=True)
class MetalSection:
    """One `[kernel.NAME]` with the backend metal."""

    name: str
    sources: tuple[Path, ...]
    include_dirs: tuple[Path, ...]


@dataclass(frozen=True)
class BuildFile:
    """The Metal part of a project."""

    path: Path
    name: str
    sections: tuple[MetalSection, ...]

    @property
    def sources(self) -> tuple[Path, ...]:
        """The Metal files of all sections, each once."""
        found = (source for section in self.sections for source in section.sources)
        return tuple(dict.fromkeys(found))

    def include_dirs(self, source: Path) -> tuple[Path, ...]:
        """Where the headers of a source are looked for; none for a file that is not listed."""
        wanted = source.resolve()
        places = (
            place
            for section in self.sections
            if any(one.resolve() == wanted for one in section.sources)
            for place in section.include_dirs
        )
        return tuple(dict.fromkeys(places))


def read_build(path: Path | str) -> BuildFile:
    """The file, or that of a folder; BuildFileError names what is wrong with it."""
    file = Path(path)
    file = file / NAME if file.is_dir() else file
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BuildFileError(f"{file}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BuildFileError(f"{file}: not valid TOML: {error}") from None
    try:
        return _checked(data, file)
    except ValueError as error:
        raise BuildFileError(f"{file}: {error}") from None


def include_dirs_for(source: Path) -> tuple[Path, ...]:
    """Those of the nearest build.toml above a Metal file, where that lists the file."""
    for folder in source.absolute().parents:
        if (folder / NAME).is_file():
            try:
                return read_build(folder).include_dirs(source)
            except BuildFileError:
                return ()  # of another tool, or wrong: who wants it names it
    return ()


def _checked(data: Mapping[str, Any], file: Path) -> BuildFile:
    general = data.get("general")
    if not isinstance(general, dict) or not isinstance(general.get("name"), str):
        raise ValueError("[general] needs a name; is this a build.toml of kernel-builder?")
    kernels = data.get("kernel", {})
    if not isinstance(kernels, dict):
        raise ValueError(f"kernel is {kernels!r}: expected tables [kernel.NAME]")
    sections = []
    for name, table in kernels.items():
        if not isinstance(table, dict) or not isinstance(table.get("backend"), str):
            raise ValueError(f"[kernel.{name}] needs a backend, such as {_METAL!r}")
        if table["backend"] == _METAL:
            sections.append(_section(name, table, file.parent))
    if not sections:
        backends = ", ".join(sorted({table["backend"] for table in kernels.values()})) or "none"
        raise ValueError(f"no [kernel.NAME] has the backend {_METAL!r}; there are {backends}")
    return BuildFile(file, general["name"], tuple(sections))


def _section(name: str, table: Mapping[str, Any], folder: Path) -> MetalSection:
    sources = [folder / word for word in _words(name, "src", table.get("src"))]
    places = [folder / word for word in _words(name, "include", table.get("include", []))]
    for source in sources:
        if not source.is_file():
            raise ValueError(f"[kernel.{name}] src has {_shown(source, folder)}: no such file")
    for place in places:
        if not place.is_dir():
            raise ValueError(f"[kernel.{name}] include has {_shown(place, folder)}: no such folder")
    metal = tuple(source for source in sources if source.suffix == ".metal")
    if not metal:
        raise ValueError(f"[kernel.{name}] src has no .metal file")
    return MetalSection(name, metal, tuple(places))


def _words(name: str, key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ValueError(f"[kernel.{name}] {key} is {value!r}: expected a list of paths")
    return value


def _shown(path: Path, folder: Path) -> str:
    return repr(str(path.relative_to(folder)))
