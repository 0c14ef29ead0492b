"""Pointers and references must say which memory they lead to."""

from __future__ import annotations

from anymetal.msl.builtins import KNOWN_TEMPLATES, KNOWN_TYPES, SPACES
from anymetal.msl.diagnostics import Problem
from anymetal.msl.source_map import Origins
from anymetal.msl.structure import Structure

_QUALIFIERS = frozenset({"const", "volatile"})
_SPECIFIERS = _QUALIFIERS | frozenset(
    ["constexpr", "static", "inline", "typename", "struct", "class", "mutable", "friend", "extern"]
)
_BEHIND_DECLARATOR = frozenset({",", ")", "=", ";", "[", "{", ":", "(", ">", ""})


class PointerChecker:
    """Looks at every `*` and `&` that stands behind the name of a type.

    A type cannot be an operand, so such a symbol always makes a pointer or a reference. Types that
    depend on template parameters may carry their space with them and are left alone, as Apple does.
    """

    def __init__(self, structure: Structure, origins: Origins) -> None:
        self.tokens = structure.tokens
        self.origins = origins
        self.problems: list[Problem] = []
        self.own_types = _own_types(structure)
        self.types = (KNOWN_TYPES | self.own_types) - structure.type_parameters

    def run(self) -> None:
        for index, text in enumerate(self.tokens.texts):
            if text in ("*", "&", "&&"):
                self._check(index, text)
            elif text == "(" and self.tokens.text(index + 1) in ("*", "&"):
                self._check_array(index)

    def _check(self, index: int, symbol: str) -> None:
        """`float* p`. A reference to a pointer, `device float*& p`, needs no second space."""
        before, has_space = self._skip_qualifiers(index - 1)
        type_start = self._type_start(before)
        if type_start is None or has_space:
            return
        own = self.tokens.text(before) in self.own_types
        if own and not self._is_declarator(index):
            return
        if not self._has_space(type_start):
            self._refuse(index, symbol)

    def _check_array(self, index: int) -> None:
        """`float (&rows)[4]`; a pointer to a function needs no space."""
        close = self.tokens.partner.get(index, index)
        is_declarator = self.tokens.is_name(close - 1) or self.tokens.text(close - 1) == ")"
        if self.tokens.text(close + 1) != "[" or not is_declarator:
            return
        before, has_space = self._skip_qualifiers(index - 1)
        start = self._type_start(before)
        if start is not None and not has_space and not self._has_space(start):
            self._refuse(index + 1, self.tokens.text(index + 1))

    def _refuse(self, index: int, symbol: str) -> None:
        kind = "pointer" if symbol == "*" else "reference"
        self.problems.append(
            Problem(
                self.origins.position(self.tokens.tokens[index]),
                "error",
                f"{kind} type must have explicit address space qualifier",
            )
        )

    def _skip_qualifiers(self, index: int) -> tuple[int, bool]:
        """Steps left over `const` and spaces; tells whether there was a space."""
        has_space = False
        while self.tokens.text(index) in _QUALIFIERS or self.tokens.text(index) in SPACES:
            has_space = has_space or self.tokens.text(index) in SPACES
            index -= 1
        return index, has_space

    def _type_start(self, index: int) -> int | None:
        """The first token of the known type that ends at index; None when there is none."""
        tokens = self.tokens
        if tokens.text(index) == ">":
            index = self._template_start(index)
            if index < 0:
                return None
        elif tokens.text(index) not in self.types or not tokens.is_name(index):
            return None
        while tokens.text(index - 1) == "::":
            before = tokens.text(index - 2)
            is_qualified = tokens.is_name(index - 2) and before not in SPACES | _SPECIFIERS
            index -= 2 if is_qualified else 1
        return index

    def _template_start(self, close: int) -> int:
        """The name in front of `<...>`, if all arguments are known; -1 otherwise."""
        tokens = self.tokens
        index, depth = close, 0
        while index > 0:
            text = tokens.text(index)
            depth += (text == ">") - (text == "<")
            if depth == 0:
                break
            is_known = text in self.types or text in ("metal", "const") or text in KNOWN_TEMPLATES
            if tokens.is_name(index) and not is_known:
                return -1
            index -= 1
        return index - 1 if tokens.text(index - 1) in KNOWN_TEMPLATES else -1

    def _has_space(self, start: int) -> bool:
        """Does a space stand among the specifiers in front of a type?"""
        index = start - 1
        while True:
            text = self.tokens.text(index)
            if text in SPACES:
                return True
            if text not in _SPECIFIERS and text not in ("unsigned", "signed", "long", "short"):
                return False
            index -= 1

    def _is_declarator(self, index: int) -> bool:
        """For names of the author's own: `Name * other` must look like a declaration."""
        following = index + 1
        while self.tokens.text(following) in _QUALIFIERS | {"*", "&"}:
            following += 1
        if self.tokens.text(following) == "operator":
            return True
        if self.tokens.is_name(following):
            following += 1
        return self.tokens.text(following) in _BEHIND_DECLARATOR


def _own_types(structure: Structure) -> frozenset[str]:
    """The program's classes and enums that do not depend on template parameters."""
    found = set()
    for class_ in structure.classes:
        is_open = class_.head > class_.start or class_.scope.template_parameters
        if class_.name and not is_open:
            found.add(class_.name)
    for class_ in structure.classes:
        if class_.head > class_.start:
            found.discard(class_.name)
    return frozenset(found)
