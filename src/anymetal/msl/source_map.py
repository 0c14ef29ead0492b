"""Rewritten text -> the author's text: which file, line and column a place came from."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache

from anymetal.msl.tokens import Token, columns
from anymetal.nouns import Position

_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_MOST_CONTINUATION_LINES = 200


@dataclass(frozen=True)
class Line:
    """One line of preprocessed text and where the author wrote it."""

    file: str
    number: int
    text: str


@dataclass
class Origins:
    """Every preprocessed line, and the texts of the files they came from."""

    lines: list[Line] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def position(self, token: Token) -> Position:
        return self.place(token.line, token.ordinal)

    def place(self, line: int, ordinal: int) -> Position:
        """Where the author wrote token number `ordinal` of a preprocessed line.

        clang -E keeps lines but neither columns nor macros, so the tokens of the line are aligned
        with those of the author's line. What a macro produced stands where the macro is used.
        """
        origin = self.lines[line]
        text = self.files.get(origin.file)
        if text is None:
            return Position(origin.file, origin.number, 1)
        places = _align(origin.text, text, origin.number)
        if ordinal >= len(places):
            return Position(origin.file, origin.number, 1)
        row, column = places[ordinal]
        return Position(origin.file, row, column)

    def excerpt(self, position: Position) -> str | None:
        """The author's line, if the file is known."""
        text = self.files.get(position.file)
        if text is None:
            return None
        lines = _author_lines(text)
        return lines[position.line - 1] if 0 < position.line <= len(lines) else None


@lru_cache(maxsize=64)
def _author_lines(text: str) -> list[str]:
    return text.split("\n")


@lru_cache(maxsize=64)
def _code_lines(text: str) -> list[str]:
    """The author's lines with comments blanked, so that columns stay."""
    return _COMMENT.sub(_blank, text).split("\n")


def _blank(match: re.Match[str]) -> str:
    text = match.group()
    return text if text[0] == '"' else re.sub(r"[^\n]", " ", text)


def _author_tokens(text: str, number: int) -> list[tuple[str, int, int]]:
    """Text, line and column of the tokens of a line, and of lines that continue its brackets."""
    lines = _code_lines(text)
    tokens: list[tuple[str, int, int]] = []
    depth = 0
    for row in range(number, min(number + _MOST_CONTINUATION_LINES, len(lines) + 1)):
        line = lines[row - 1]
        for spelling, column in columns(line.rstrip("\\ \t\r")):
            tokens.append((spelling, row, column))
            depth += (spelling == "(") - (spelling == ")")
        if depth <= 0 and not line.rstrip().endswith("\\"):
            break
    return tokens


@lru_cache(maxsize=1024)
def _align(preprocessed: str, text: str, number: int) -> list[tuple[int, int]]:
    """For each token of a preprocessed line the author's line and column."""
    wanted = [spelling for spelling, _ in columns(preprocessed)]
    written = _author_tokens(text, number)
    if not written:
        return [(number, 1)] * len(wanted)
    spellings = [spelling for spelling, _, _ in written]
    if spellings[: len(wanted)] == wanted:
        return [(row, column) for _, row, column in written[: len(wanted)]]
    matched = _matches(wanted, spellings)
    taken = set(matched.values())
    macros = [
        index
        for index, spelling in enumerate(spellings)
        if index not in taken and spelling.isidentifier()
    ]
    return [written[index][1:] for index in _fill(matched, macros, len(wanted), len(written))]


def _matches(wanted: list[str], written: list[str]) -> dict[int, int]:
    """Pairs of equal tokens in order: those the preprocessor left as they were."""
    blocks = SequenceMatcher(None, wanted, written, autojunk=False).get_matching_blocks()
    return {block.a + offset: block.b + offset for block in blocks for offset in range(block.size)}


def _fill(matched: dict[int, int], macros: list[int], wanted: int, written: int) -> list[int]:
    """Gives each token a place: its own, or that of the macro that produced it."""
    following: list[int] = [written] * (wanted + 1)
    for index in reversed(range(wanted)):
        following[index] = matched.get(index, following[index + 1])
    places = []
    previous = -1
    for index in range(wanted):
        if index in matched:
            previous = matched[index]
            places.append(previous)
            continue
        first = bisect_right(macros, previous)
        if first < len(macros) and macros[first] < following[index]:
            places.append(macros[first])  # a macro stands between the neighbours
        elif first > 0:
            places.append(macros[first - 1])  # inside the arguments of a macro
        else:
            places.append(max(previous, 0))
    return places


class SourceMap:
    """Places in the rewritten text, in order, each with the token it stems from."""

    def __init__(self, origins: Origins) -> None:
        self.origins = origins
        self._row_starts = array("l", [0, 0])  # index of the first entry of each row; row 0 unused
        self._columns = array("l")
        self._lines = array("l")
        self._ordinals = array("l")

    def add(self, column: int, line: int, ordinal: int) -> None:
        """The text from this column of the current row on stems from a token."""
        self._columns.append(column)
        self._lines.append(line)
        self._ordinals.append(ordinal)

    def new_row(self) -> None:
        self._row_starts.append(len(self._columns))

    def position(self, row: int, column: int) -> Position | None:
        """The author's place for a place in the rewritten text, or None outside it."""
        if not 0 < row < len(self._row_starts):
            return None
        start = self._row_starts[row]
        last = row + 1 == len(self._row_starts)
        end = len(self._columns) if last else self._row_starts[row + 1]
        entry = bisect_right(self._columns, column, start, end) - 1
        if entry < start:
            entry = start if start < end else entry
        if entry < 0:
            return None
        return self.origins.place(self._lines[entry], self._ordinals[entry])

    def excerpt(self, position: Position) -> str | None:
        return self.origins.excerpt(position)
