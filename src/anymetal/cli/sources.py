"""A path and options become a Source; a compiler's text becomes single diagnostics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import typer

from anymetal.air.archive import SUFFIXES, metallib_source
from anymetal.hub.build_file import include_dirs_for
from anymetal.nouns import Language, Source
from anymetal.project import project

Include = Annotated[
    list[Path] | None, typer.Option("-I", metavar="DIR", help="a directory with headers")
]
Define = Annotated[
    list[str] | None, typer.Option("-D", metavar="NAME=VALUE", help="a macro; VALUE is 1 if absent")
]

LanguageVersion = Annotated[
    str | None, typer.Option("--language", metavar="VERSION", help="of Metal: 3.1, 3.2 or 4.0")
]

_HEAD = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?P<severity>[a-z ]+): (?P<text>.*)$"
)


@dataclass(frozen=True)
class Options:
    """What -I, -D, --library and --language gave, and the project's own directories and macros."""

    include_dirs: tuple[Path, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    library: str | None = None
    language: Language = "3.2"

    @classmethod
    def parse(
        cls,
        include: Sequence[Path] | None,
        define: Sequence[str] | None,
        library: str | None = None,
        language: str | None = None,
    ) -> Options:
        for place in include or ():
            if not place.is_dir():
                raise typer.BadParameter(f"-I {place}: no such directory")
        pairs = [text.partition("=") for text in define or ()]
        for name, _, _ in pairs:
            if not name.isidentifier():
                raise typer.BadParameter(f"-D {name}: not a name")
        versions = get_args(Language)
        if language not in (None, *versions):
            raise typer.BadParameter(f"--language {language}: expected {', '.join(versions)}")
        asked = project()
        given = {name: value if separator else "1" for name, separator, value in pairs}
        return cls(
            (*(place.absolute() for place in include or ()), *asked.include_dirs),
            tuple({**asked.defines, **given}.items()),
            library,
            next((version for version in versions if version == language), "3.2"),
        )


@dataclass(frozen=True)
class Diagnostic:
    """One message of the compiler, at a place the author wrote; line 0 where there is none."""

    file: str
    line: int
    column: int
    severity: str
    message: str


Library = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="which metallib of a wheel or dynamic library"),
]


def is_binary(path: object) -> bool:
    """Whether a path is that of compiled kernels: a metallib, or a file that holds some."""
    return Path(str(path)).suffix in SUFFIXES


def is_kernel_file(path: object) -> bool:
    """Whether a path is that of kernels: source, or what Apple's compiler made of it."""
    return Path(str(path)).suffix == ".metal" or is_binary(path)


def source_of(path: Path, options: Options) -> Source:
    """The file as a Source; headers beside it, and where its build.toml says, need no -I."""
    if is_binary(path):
        return metallib_source(path, options.library)
    return Source(
        text=path.read_text(),
        name=str(path),
        include_dirs=(path.absolute().parent, *options.include_dirs, *include_dirs_for(path)),
        defines=options.defines,
        language=options.language,
    )


def diagnostics_of(text: str, path: Path) -> list[Diagnostic]:
    """The single messages in a compiler's text; the whole text at the file where it has none."""
    found = []
    for line in text.splitlines():
        match = _HEAD.match(line)
        if match:
            found.append(
                Diagnostic(
                    match["file"],
                    int(match["line"]),
                    int(match["column"]),
                    match["severity"],
                    match["text"],
                )
            )
    return found or [Diagnostic(str(path), 0, 0, "error", text)]
