"""Where an instruction of AIR comes from: its line of the disassembly, or of the author's text."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from anymetal.ir import Module
from anymetal.ir.tokens import Reader
from anymetal.nouns import Position

_ATTACHED = re.compile(r", ![\w.]+ !(?:\d+|\{[^}]*\})")
_DEBUG = re.compile(r" !dbg (!\d+)")
_GROUP = re.compile(r" #\d+(?=$|,)")


class AirMap:
    """Places of one kernel. Rows are lines of its disassembly, counted from 1."""

    def __init__(self, kernel: str, text: str, module: Module) -> None:
        self._file = f"{kernel}.air"
        self._lines = text.split("\n")
        self._written = _written_places(self._lines, module)
        self._rows = {place: row for row, place in reversed(self._written.items())}

    def position(self, row: int, column: int) -> Position | None:
        """The author's place, where the library has debug information; else the row itself."""
        if not 0 < row <= len(self._lines):
            return None
        return self._written.get(row) or Position(self._file, row, column)

    def excerpt(self, position: Position) -> str | None:
        """The author's line, if the file is at hand; else the instruction."""
        row = position.line
        if position.file != self._file:
            lines = _lines_of(position.file)
            if 0 < row <= len(lines):
                return lines[row - 1]
            row = self._rows.get(position, 0)
        if not 0 < row <= len(self._lines):
            return None
        return _GROUP.sub("", _ATTACHED.sub("", self._lines[row - 1]))


@functools.lru_cache(maxsize=16)
def _lines_of(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(errors="replace").split("\n"))
    except OSError:
        return ()


def _written_places(lines: list[str], module: Module) -> dict[int, Position]:
    """The author's place of each row that names one."""
    rows = {
        row: found[1]
        for row, line in enumerate(lines, 1)
        if line[:1] == " " and (found := _DEBUG.search(line))
    }
    if not rows:
        return {}
    nodes = module.nodes()

    @functools.cache
    def fields(node: str) -> dict[str, str]:
        tokens = Reader(nodes[node]).tokens
        pairs = ((at, token) for at, token in enumerate(tokens) if token == ":")
        return {tokens[at - 1]: tokens[at + 1] for at, _ in pairs}

    @functools.cache
    def place(node: str) -> Position:
        location = fields(node)
        file = fields(fields(location["scope"])["file"])
        name = Path(file.get("directory", '""').strip('"')) / file["filename"].strip('"')
        return Position(str(name), int(location["line"]), int(location.get("column", "1")))

    return {row: place(node) for row, node in rows.items()}
