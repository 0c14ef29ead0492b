"""Preprocessed C++ text -> tokens that know which line they stood on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# `>` is never joined to what follows: `>>` may close two template argument lists. The writer puts
# adjacent tokens back together, so clang sees the operator the author wrote.
_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\])*")
  | (?P<char>'(?:\\.|[^'\\])+')
  | (?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
  | (?P<name>[A-Za-z_$]\w*)
  | (?P<symbol>::|->\*?|\+\+|--|<<=|<<|<=|==|!=|&&|\|\||[-+*/%&|^]=|\.\.\.|\#\#|.)
    """,
    re.VERBOSE | re.DOTALL,
)

OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = frozenset(OPENING.values())


class Token:
    """One token; `line` numbers a preprocessed line and `ordinal` the token's place in it."""

    __slots__ = ("kind", "line", "ordinal", "space", "text")

    def __init__(self, kind: str, text: str, space: bool, line: int, ordinal: int) -> None:
        self.kind = kind  # name, number, string, char, symbol or pragma
        self.text = text
        self.space = space  # white space stood before it
        self.line = line
        self.ordinal = ordinal

    def __repr__(self) -> str:
        return f"Token({self.kind}, {self.text!r})"


def tokenize_line(text: str, line: int = 0) -> Iterator[Token]:
    """The tokens of one line that holds no comment."""
    space = False
    ordinal = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "space":
            space = True
            continue
        yield Token(kind or "symbol", match.group(), space, line, ordinal)
        ordinal += 1
        space = False


def columns(text: str) -> list[tuple[str, int]]:
    """Each token of a line with its column, counted from 1."""
    return [
        (match.group(), match.start() + 1)
        for match in _TOKEN.finditer(text)
        if match.lastgroup != "space"
    ]


def match_brackets(tokens: Sequence[Token]) -> tuple[dict[int, int], int | None]:
    """Partners of (), [] and {} in both directions, and the first bracket without a partner."""
    partner: dict[int, int] = {}
    open_brackets: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind != "symbol":
            continue
        if token.text in OPENING:
            open_brackets.append(index)
        elif token.text in CLOSING:
            wanted = [OPENING[tokens[place].text] for place in open_brackets[-1:]]
            if wanted != [token.text]:
                return partner, _culprit(tokens, open_brackets, index)
            opening = open_brackets.pop()
            partner[opening] = index
            partner[index] = opening
    return partner, open_brackets[0] if open_brackets else None


def _culprit(tokens: Sequence[Token], open_brackets: list[int], closing: int) -> int:
    """Of two brackets that do not fit: the inner one was not closed if an outer one fits."""
    outer = {OPENING[tokens[place].text] for place in open_brackets}
    return open_brackets[-1] if tokens[closing].text in outer else closing


class TokenRange:
    """The whole translation unit's tokens with their brackets matched: what every step reads."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.texts = [token.text if token.kind != "string" else '""' for token in tokens]
        self.partner, self.unmatched = match_brackets(tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def text(self, index: int) -> str:
        """Text of a token, empty outside the range; a string literal reads as `""`."""
        return self.texts[index] if 0 <= index < len(self.texts) else ""

    def is_name(self, index: int) -> bool:
        return 0 <= index < len(self.tokens) and self.tokens[index].kind == "name"

    def after(self, index: int) -> int:
        """The index behind a token, or behind its partner when it opens a bracket."""
        if self.texts[index] in OPENING and index in self.partner:
            return self.partner[index] + 1
        return index + 1

    def is_attribute(self, index: int) -> bool:
        """Does `[[` stand here?"""
        return (
            self.text(index) == "["
            and self.text(index + 1) == "["
            and self.partner.get(index + 1, -2) == self.partner.get(index, 0) - 1
        )

    def angle_end(self, index: int) -> int | None:
        """The `>` that closes the `<` at index; None when this `<` is a comparison."""
        depth = 0
        while index < len(self.texts):
            text = self.texts[index]
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return index
            elif text in ("(", "[", "{"):
                index = self.partner.get(index, index)
            elif text in (";", ")", "]", "}"):
                return None
            index += 1
        return None

    def split_commas(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of a range between its outermost commas; template arguments are skipped."""
        parts = []
        first = index = start
        while index < end:
            text = self.texts[index]
            if text == ",":
                parts.append((first, index))
                first = index + 1
            elif text == "<" and self.is_name(index - 1):
                close = self.angle_end(index)
                if close is not None and close < end:
                    index = close
            index = self.after(index)
        if first < end or parts:
            parts.append((first, end))
        return parts

    def spell(self, start: int, end: int) -> str:
        """The range as text on one line, spaced as the author spaced it."""
        pieces = []
        for index in range(start, end):
            token = self.tokens[index]
            joins = index > start and (token.space or token.line != self.tokens[index - 1].line)
            pieces.append(" " + token.text if joins else token.text)
        return "".join(pieces)
