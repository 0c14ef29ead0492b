"""Return addresses go in, a line of an extension's source comes out."""

from __future__ import annotations

import ctypes
import functools
import linecache
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from anymetal.nouns import Position


class _Info(ctypes.Structure):
    """What dladdr tells: the library an address is in, and where that begins."""

    _fields_ = [
        ("library", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("start", ctypes.c_void_p),
    ]


_dladdr = ctypes.CDLL(None).dladdr
_dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Info)]


class Symbols:
    """The libraries of extensions, and the folders their own sources are in."""

    def __init__(self) -> None:
        self._folders: dict[str, Path] = {}

    def add(self, library: Path, folder: Path) -> None:
        self._folders[str(library)] = folder

    def position(self, frames: Iterable[int]) -> Position | None:
        """The innermost line of an extension's own that the frames came through: of a `.mm`, where
        one of those called what is in a header."""
        lines = list(self._own_lines(frames))
        sources = (line for line in lines if line.file.endswith(".mm"))
        return next(sources, lines[0] if lines else None)

    def _own_lines(self, frames: Iterable[int]) -> Iterator[Position]:
        for frame in frames:
            info = _Info()
            if not _dladdr(frame, ctypes.byref(info)) or not info.library:
                continue
            library = info.library.decode()
            if library in self._folders:
                # A return address is behind its call.
                for place in _lines(library, frame - info.base - 1):
                    if Path(place.file).is_relative_to(self._folders[library]):
                        yield place


def excerpt(position: Position | None) -> str:
    return linecache.getline(position.file, position.line).rstrip("\n") if position else ""


@functools.cache
def _lines(library: str, offset: int) -> tuple[Position, ...]:
    """The line of a call, and those it was inlined into."""
    command = ["addr2line", "-i", "-e", library, hex(offset)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return tuple(_positions(done.stdout.splitlines()))


def _positions(lines: Iterable[str]) -> Iterator[Position]:
    for line in lines:
        file, _, number = line.partition(" (")[0].rpartition(":")
        if number.isdigit() and int(number) > 0:
            yield Position(str(Path(file).resolve()), int(number), 1)
