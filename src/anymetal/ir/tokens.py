"""The words of a line of IR, and the pieces every grammar rule needs: types, values, attributes."""

from __future__ import annotations

import re

from anymetal.ir.operand import Operand
from anymetal.ir.types import Type, read_type, word_type

_TOKEN = re.compile(
    r"""
    [%@!c]?"[^"]*"                                   # strings and quoted names
  | [%@!][-\w.$]+                                    # names, metadata
  | [-+]?(?:0x[HRKLM]?[0-9A-Fa-f]+|\d+(?:\.\d*(?:e[-+]?\d+)?)?|(?:inf|nan)\b)
  | [A-Za-z_][\w.]*
  | \#\w+                                            # attribute groups, debug records
  | \.\.\.
  | [^\s]
    """,
    re.VERBOSE,
)
_OPEN, _CLOSE = frozenset("<[{("), frozenset(">]})")
_SIMPLE_CONSTANTS = frozenset(
    ["true", "false", "null", "undef", "poison", "zeroinitializer", "none"]
)
_CONSTANT_EXPRESSIONS = frozenset(
    [
        "splat",
        "getelementptr",
        "inttoptr",
        "ptrtoint",
        "bitcast",
        "trunc",
        "addrspacecast",
        "add",
        "sub",
        "xor",
        "shl",
    ]
)
_BEFORE_A_WORD = frozenset(("align", "section", "partition", "gc"))
_CONSTANTS = _SIMPLE_CONSTANTS | _CONSTANT_EXPRESSIONS


class UnknownInstruction(ValueError):
    """The text is nothing this reader knows."""


class Reader:
    """A position in a line of IR."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = _TOKEN.findall(text)
        self.tokens += ["", ""]  # so that a rule can look at the next token but one
        self.at = 0
        self._starts: list[int] = []

    def fail(self, expected: str) -> UnknownInstruction:
        return UnknownInstruction(f"expected {expected}, not {self.peek!r}, in: {self.text}")

    @property
    def peek(self) -> str:
        return self.tokens[self.at]

    def next(self) -> str:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.tokens[self.at] != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.fail(repr(token))

    def since(self, start: int) -> str:
        """The text from token number `start` to here."""
        if not self._starts:
            self._starts = [found.start() for found in _TOKEN.finditer(self.text)]
            self._starts.append(len(self.text))
        end = self._starts[self.at]
        return self.text[self._starts[start] : end].rstrip(" ")

    def rest(self) -> str:
        """All that is left."""
        start, self.at = self.at, len(self.tokens) - 2
        return self.since(start)

    def skip_balanced(self) -> None:
        """Over the bracket that stands here, to behind its partner."""
        depth = 0
        while True:
            token = self.next()
            if not token:
                raise self.fail("a closing bracket")
            depth += (token in _OPEN) - (token in _CLOSE)
            if depth == 0:
                return

    # ---- types and values --------------------------------------------------------------------

    @property
    def at_type(self) -> bool:
        token = self.tokens[self.at]
        return token in ("<", "[", "{") or token[:1] == "%" or word_type(token) is not None

    def type(self) -> Type:
        try:
            kind, self.at = read_type(self.tokens, self.at)
        except (ValueError, IndexError) as error:
            raise self.fail("a type") from error
        return kind

    def value(self) -> str:
        start, token = self.at, self.next()
        first = token[:1]
        if first in ("%", "@") or first.isdigit() or token in _SIMPLE_CONSTANTS:
            return token
        if first in ("-", "+") or token.startswith('c"') or token in ("inf", "nan"):
            return token
        if token in ("<", "[", "{"):
            self.at = start
            self.skip_balanced()
            return self.since(start)
        if token in _CONSTANT_EXPRESSIONS:
            while self.peek and self.peek != "(":
                self.at += 1
            self.skip_balanced()
            return self.since(start)
        self.at = start
        raise self.fail("a value")

    def operand(self) -> Operand:
        return Operand(self.type(), self.value())

    def operands(self) -> tuple[Operand, ...]:
        """Operands up to metadata or the end."""
        found = [self.operand()]
        while self.peek == "," and self.tokens[self.at + 1][:1] != "!":
            self.at += 1
            found.append(self.operand())
        return tuple(found)

    def label(self) -> str:
        token = self.next()
        if token[:1] != "%":
            raise self.fail("a label")
        return token[1:]

    # ---- attributes --------------------------------------------------------------------------

    def flags(self) -> tuple[str, ...]:
        """The words before the first type; `inrange(0, 4)` is one."""
        words = []
        while not self.at_type:
            words.append(self.attribute())
        return tuple(words)

    def attribute(self) -> str:
        """One attribute: `noundef`, `align 4`, `range(i32 0, 5)`, `"key"="value"`, `#3`."""
        start, token = self.at, self.next()
        if not token or not (token[0].isalpha() or token[0] in '"#_'):
            self.at = start
            raise self.fail("an attribute")
        if self.peek == "(":
            self.skip_balanced()
        elif (
            (token[0] == '"' and self.accept("="))
            or token == "align"
            or token in ("section", "partition", "gc")
        ):
            self.at += 1
        else:
            return token
        return self.since(start)

    def attributes(self) -> tuple[str, ...]:
        """Attributes between a type and its value, where there may be none."""
        if self.tokens[self.at][:1] in ("%", "@"):
            return ()
        found = []
        while (token := self.peek) and token not in _CONSTANTS:
            if not (token[0].isalpha() or token[0] == '"') or token.startswith('c"'):
                break
            if token in ("inf", "nan"):
                break
            found.append(self.attribute())
        return tuple(found)

    def metadata(self) -> dict[str, str]:
        """Attachments up to the end: `, !dbg !7, !tbaa !3`, by their names without the mark."""
        found: dict[str, str] = {}
        while self.accept(","):
            name = self.next()
            if name[:1] != "!":
                raise self.fail("metadata")
            found[name[1:]] = self.node()
        return found

    def node(self) -> str:
        """A reference to metadata, or a node written in place."""
        start = self.at
        token = self.next()
        if token[:1] != "!":
            raise self.fail("a metadata node")
        if self.peek in ("(", "{"):
            self.skip_balanced()
        return self.since(start)
