"""Threadgroup variables of kernels become references into the threadgroup's memory.

A declaration that is missed here would silently become a local of each thread. So every
`threadgroup` that is not accounted for is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from anymetal.msl.address_spaces import is_method_qualifier
from anymetal.msl.builtins import SPACES
from anymetal.msl.edits import Edits, Piece
from anymetal.msl.reflect import Kernel
from anymetal.msl.structure import Function, starts_statement
from anymetal.msl.tokens import TokenRange

# What a threadgroup variable begins with, a constant: its slot follows.
INITIAL = "am_initial_"
_SKIPPED = frozenset({"alignas", "decltype", "__attribute__"})


@dataclass(frozen=True)
class Declarator:
    """One name of a declaration: `b[2][N] = {0}`."""

    name: int
    dimensions: tuple[int, int]
    initialiser: tuple[int, int] | None


@dataclass(frozen=True)
class ThreadgroupDeclaration:
    """`threadgroup T a[N], b[2][N];`"""

    start: int
    end: int  # behind the semicolon
    type: tuple[int, int]
    alignment: tuple[int, int] | None  # the argument of alignas
    declarators: tuple[Declarator, ...]


def find_declarations(tokens: TokenRange, function: Function) -> list[ThreadgroupDeclaration]:
    """The threadgroup variables declared in a function's body."""
    if function.body is None:
        return []
    found: list[ThreadgroupDeclaration] = []
    start, end = function.body
    if "threadgroup" not in tokens.texts[start:end]:
        return found
    for index in range(start + 1, end):
        if starts_statement(tokens, index):
            declaration = read_declaration(tokens, index, end)
            if declaration is not None:
                found.append(declaration)
    return found


def read_declaration(tokens: TokenRange, start: int, end: int) -> ThreadgroupDeclaration | None:
    """Reads a statement as a declaration of threadgroup variables; None when it is none."""
    is_threadgroup = False
    alignment = None
    index = start
    while index < end:
        text = tokens.text(index)
        if text in _SKIPPED and tokens.text(index + 1) == "(":
            if text == "alignas":
                alignment = (index, tokens.after(index + 1))
            index = tokens.after(index + 1)
            continue
        if tokens.is_attribute(index):
            index = tokens.after(index)
            continue
        if text == "<" and tokens.is_name(index - 1):
            close = tokens.angle_end(index)
            if close is None:
                return None
            index = close
        elif text == "*":  # `device T* threadgroup p` is a pointer kept in threadgroup memory
            if not _space_of_pointer(tokens, index):
                return None
        elif tokens.is_name(index):
            is_threadgroup = is_threadgroup or text == "threadgroup"
            if is_threadgroup and index > start and _ends_name(tokens, index):
                return _finish(tokens, start, index, end, alignment)
            if not is_threadgroup and index == start and text in _STATEMENT_WORDS:
                return None
        elif text != "::":
            return None
        index += 1
    return None


_STATEMENT_WORDS = frozenset(
    [
        "return",
        "if",
        "for",
        "while",
        "do",
        "switch",
        "case",
        "break",
        "continue",
        "using",
        "typedef",
    ]
)


def _space_of_pointer(tokens: TokenRange, star: int) -> bool:
    index = star + 1
    while tokens.text(index) in SPACES | {"const", "volatile"}:
        if tokens.text(index) == "threadgroup":
            return True
        index += 1
    return False


def _ends_name(tokens: TokenRange, index: int) -> bool:
    """Is this name the declared one, with nothing of the type behind it?"""
    following = tokens.text(index + 1)
    return tokens.text(index) not in SPACES and following in ("[", ",", ";", "=", "{")


def _finish(
    tokens: TokenRange, start: int, name: int, end: int, alignment: tuple[int, int] | None
) -> ThreadgroupDeclaration:
    semicolon = name
    while semicolon < end and tokens.text(semicolon) != ";":
        semicolon = tokens.after(semicolon)
    declarators = [
        _declarator(tokens, first, last) for first, last in tokens.split_commas(name, semicolon)
    ]
    return ThreadgroupDeclaration(
        start, semicolon + 1, (start, name), alignment, tuple(declarators)
    )


def _declarator(tokens: TokenRange, first: int, last: int) -> Declarator:
    index = first + 1
    while index < last and tokens.text(index) == "[":
        index = tokens.after(index)
    initialiser = None
    if index < last:
        initialiser = (index, last)
    return Declarator(first, (first + 1, index), initialiser)


class ThreadgroupRewriter:
    """Numbers the variables of all kernels and edits their declarations."""

    def __init__(self, tokens: TokenRange, edits: Edits) -> None:
        self.tokens = tokens
        self.edits = edits
        self.slots: list[int] = []  # the name token of each slot
        self.accounted: set[int] = set()  # `threadgroup` tokens that were rewritten

    def rewrite(self, kernel: Kernel) -> None:
        for declaration in find_declarations(self.tokens, kernel.function):
            self._rewrite(declaration)

    def _rewrite(self, declaration: ThreadgroupDeclaration) -> None:
        start, end = declaration.type
        self.accounted.update(i for i in range(start, end) if self.tokens.text(i) == "threadgroup")
        if declaration.alignment is not None:
            self.edits.remove(*declaration.alignment)
        pieces: list[Piece] = []
        for declarator in declaration.declarators:
            pieces += self._variable(declaration, declarator)
        self.edits.replace(declaration.start, declaration.end, pieces)

    def _variable(self, declaration: ThreadgroupDeclaration, declarator: Declarator) -> list[Piece]:
        """A name for the type, then a reference of that type to the slot's storage."""
        slot = len(self.slots)
        self.slots.append(declarator.name)
        name = range(declarator.name, declarator.name + 1)
        alias = f"am_type_{slot}"
        pieces: list[Piece] = [
            f"using {alias} =",
            range(*declaration.type),
            range(*declarator.dimensions),
            f"; {alias}&",
            name,
            "=",
            *self._storage(declaration, slot, alias),
            ";",
        ]
        if declarator.initialiser is not None:
            initial = f"{INITIAL}{slot}"
            pieces += [
                f"constinit static const {alias} {initial}",
                range(*declarator.initialiser),
                "; am_store_initial(",
                name,
                f", {initial});",
            ]
        return pieces

    def _storage(self, declaration: ThreadgroupDeclaration, slot: int, alias: str) -> list[Piece]:
        if declaration.alignment is None:
            return [f"am_threadgroup_variable<{alias}, {slot}>()"]
        start, end = declaration.alignment
        return [
            f"am_aligned_threadgroup_variable<{alias}, {slot},",
            range(start + 2, end - 1),
            ">()",
        ]


def unaccounted(tokens: TokenRange, accounted: set[int]) -> list[int]:
    """The `threadgroup` tokens that are neither variables we rewrote nor part of a pointer type."""
    left = []
    for index, text in enumerate(tokens.texts):
        if text != "threadgroup" or index in accounted or tokens.text(index - 1) == "[":
            continue
        in_attribute = tokens.text(index + 1) == "("  # [[buffer(0), threadgroup(1)]]
        if not (in_attribute or is_method_qualifier(tokens, index)):
            left += [] if _qualifies_pointee(tokens, index) else [index]
    return left


def _qualifies_pointee(tokens: TokenRange, index: int) -> bool:
    """Does a `*` or `&` follow the type this space belongs to, or is it a template's argument?"""
    if tokens.text(index - 1) == "<":
        return True
    while index < len(tokens):
        text = tokens.text(index)
        if text in ("*", "&", "&&"):
            return True
        if text == "(":
            if tokens.text(index - 1) in _SKIPPED:
                index = tokens.after(index)
                continue
            return tokens.text(index + 1) in ("*", "&", "&&")
        if text == "<" and tokens.is_name(index - 1):
            index = tokens.angle_end(index) or index
        elif text == ">":
            return True  # a template argument: no variable is declared
        elif text != "::" and not tokens.is_name(index):
            return False
        index += 1
    return False
