"""Edits over tokens, and the writer that turns tokens and edits into text with a source map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anymetal.msl.source_map import Origins, SourceMap
from anymetal.msl.tokens import TokenRange

Piece = str | range  # new text, or tokens of the author (edits inside them apply)


@dataclass(frozen=True)
class Edit:
    """Puts `pieces` in place of the tokens from start to end."""

    start: int
    end: int
    pieces: tuple[Piece, ...]


class Edits:
    """The edits of one translation unit. An edit may stand inside the pieces of another."""

    def __init__(self) -> None:
        self._by_start: dict[int, list[Edit]] = {}
        self._before: dict[int, list[str]] = {}

    def replace(self, start: int, end: int, pieces: Sequence[Piece]) -> None:
        """Wider edits go first at one start, whatever the order they were made in."""
        edits = self._by_start.setdefault(start, [])
        edits.append(Edit(start, end, tuple(pieces)))
        edits.sort(key=lambda edit: -edit.end)

    def remove(self, start: int, end: int | None = None) -> None:
        self.replace(start, start + 1 if end is None else end, ())

    def word(self, index: int, text: str) -> None:
        self.replace(index, index + 1, (text,))

    def insert(self, index: int, text: str) -> None:
        """Text in front of a token; it stays when the token itself is replaced."""
        self._before.setdefault(index, []).append(text)

    def take_insertions(self, index: int) -> list[str]:
        return self._before.get(index, [])

    def at(self, index: int, outer: Edit | None, end: int) -> Edit | None:
        """The widest edit that starts here and is narrower than the one being written."""
        for edit in self._by_start.get(index, ()):
            if edit.end > end:
                continue
            if outer is not None and edit.start == outer.start and edit.end >= outer.end:
                continue
            return edit
        return None


class Writer:
    """Writes tokens with their edits; every written word remembers its token."""

    def __init__(self, tokens: TokenRange, edits: Edits, origins: Origins) -> None:
        self.tokens = tokens
        self.edits = edits
        self.map = SourceMap(origins)
        self._pieces: list[str] = []
        self._column = 1
        self._line = -1
        self._apart = False  # new text was written last: a space must follow

    def write(self) -> str:
        self._range(0, len(self.tokens), None)
        return "".join(self._pieces) + "\n"

    def _range(self, index: int, end: int, outer: Edit | None) -> None:
        while index < end:
            for text in self.edits.take_insertions(index):
                self._new_text(text, index)
            edit = self.edits.at(index, outer, end)
            if edit is None:
                token = self.tokens.tokens[index]
                if token.kind == "pragma":
                    self._pragma(token.text, index)
                else:
                    self._word(token.text, index, token.space)
                index += 1
                continue
            for piece in edit.pieces:
                if isinstance(piece, str):
                    self._new_text(piece, index)
                else:
                    self._range(piece.start, piece.stop, edit)
            index = edit.end

    def _new_text(self, text: str, index: int) -> None:
        self._word(text, index, True)
        self._apart = True

    def _word(self, text: str, index: int, space: bool) -> None:
        token = self.tokens.tokens[index]
        if token.line != self._line and self._column > 1:
            self._break()
        elif (space or self._apart) and self._column > 1:
            self._put(" ")
        self._apart = False
        self._line = token.line
        self.map.add(self._column, token.line, token.ordinal)
        self._put(text)

    def _pragma(self, text: str, index: int) -> None:
        if self._column > 1:
            self._break()
        self._word(text, index, False)
        self._break()

    def _put(self, text: str) -> None:
        self._pieces.append(text)
        self._column += len(text.encode()) if not text.isascii() else len(text)

    def _break(self) -> None:
        self._pieces.append("\n")
        self._column = 1
        self._line = -1
        self.map.new_row()


def spell_edited(tokens: TokenRange, edits: Edits, start: int, end: int) -> str:
    """The edited text of a range alone, on one line."""
    words: list[str] = []

    def walk(index: int, stop: int, outer: Edit | None) -> None:
        while index < stop:
            edit = edits.at(index, outer, stop)
            if edit is None:
                token = tokens.tokens[index]
                apart = token.space or token.line != tokens.tokens[index - 1].line
                words.append(" " + token.text if apart else token.text)
                index += 1
                continue
            for piece in edit.pieces:
                if isinstance(piece, str):
                    words.append(f" {piece} ")
                else:
                    walk(piece.start, piece.stop, edit)
            index = edit.end

    walk(start, end, None)
    return "".join(words).strip()
