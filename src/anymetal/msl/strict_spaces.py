"""Pointers that change their address space on the way: by a cast, or by being stored.

Only what tokens can tell is checked: pointers whose declaration names a space, used by their name,
with an offset, or through the address of an element.
"""

from __future__ import annotations

from dataclasses import dataclass

from anymetal.msl.builtins import SPACES
from anymetal.msl.diagnostics import Problem
from anymetal.msl.source_map import Origins
from anymetal.msl.structure import Function, Structure
from anymetal.msl.threadgroup import find_declarations

_TYPE_WORDS = frozenset({"const", "volatile", "unsigned", "signed", "typename", "struct"})
_BEHIND_NAME = frozenset({"=", ";", ",", ")", "{"})
_BEHIND_POINTER = frozenset({";", ",", ")", "+", "-"})


@dataclass(frozen=True)
class _Pointer:
    """A pointer type with its space, as the author wrote it."""

    space: str
    type: str


class SpaceChecker:
    def __init__(self, structure: Structure, origins: Origins) -> None:
        self.structure = structure
        self.tokens = structure.tokens
        self.origins = origins
        self.problems: list[Problem] = []

    def run(self) -> None:
        for function in self.structure.functions:
            if function.body is not None:
                self._check(function, function.body)

    def _check(self, function: Function, body: tuple[int, int]) -> None:
        pointers = self._pointers(function)
        for index in range(body[0] + 1, body[1]):
            text = self.tokens.text(index)
            if text in ("reinterpret_cast", "static_cast"):
                self._named_cast(index, pointers)
            elif text in SPACES:
                self._c_style_cast(index, pointers)
                self._initialiser(index, pointers)

    # ---- what is declared ------------------------------------------------------------------------

    def _pointers(self, function: Function) -> dict[str, _Pointer]:
        """The function's pointers by name; a name with two meanings is left out."""
        found: dict[str, _Pointer | None] = {}
        for index in range(function.parameters[0], function.end):
            if self.tokens.text(index) in SPACES:
                name, pointer = self._declaration(index)
                if name is not None and pointer is not None:
                    known = found.setdefault(self.tokens.text(name), pointer)
                    if known != pointer:
                        found[self.tokens.text(name)] = None
        for declaration in find_declarations(self.tokens, function):
            words = [self.tokens.text(i) for i in range(*declaration.type)]
            type_ = " ".join(word for word in words if word not in ("threadgroup", "const"))
            for declarator in declaration.declarators:
                name_text = self.tokens.text(declarator.name)
                found[name_text] = _Pointer("threadgroup", f"threadgroup {type_} *")
        return {name: pointer for name, pointer in found.items() if pointer is not None}

    def _declaration(self, index: int) -> tuple[int | None, _Pointer | None]:
        """Reads `space T* name` from its space on."""
        star = self._star(index)
        if star is None:
            return None, None
        name = star + 1
        while self.tokens.text(name) in ("const", "volatile", "restrict", "__restrict"):
            name += 1
        is_declared = self.tokens.is_name(name) and (
            self.tokens.text(name + 1) in _BEHIND_NAME or self.tokens.is_attribute(name + 1)
        )
        return name if is_declared else None, self._pointer(index, star)

    def _star(self, index: int) -> int | None:
        """The `*` that follows a space and the rest of its type."""
        tokens = self.tokens
        index += 1
        while tokens.is_name(index) or tokens.text(index) in ("::", "<"):
            if tokens.text(index) == "<":
                close = tokens.angle_end(index)
                if close is None:
                    return None
                index = close
            index += 1
        return index if tokens.text(index) == "*" else None

    def _pointer(self, index: int, star: int) -> _Pointer:
        start = index
        while self.tokens.text(start - 1) in _TYPE_WORDS:
            start -= 1
        words = self.tokens.texts[start:star]
        return _Pointer(self.tokens.text(index), " ".join(words).replace(" :: ", "::") + " *")

    # ---- where spaces meet -----------------------------------------------------------------------

    def _c_style_cast(self, index: int, pointers: dict[str, _Pointer]) -> None:
        star = self._star(index)
        if star is None or self.tokens.text(star + 1) != ")":
            return
        opening = self.tokens.partner.get(star + 1, 0)
        if self.tokens.is_name(opening - 1) or self.tokens.text(opening - 1) in (">", "]", ")"):
            return  # parameters, not a cast
        target = self._pointer(index, star)
        source = self._operand(star + 2, pointers)
        if source is not None and source.space != target.space:
            self._refuse(
                opening,
                f"C-style cast from '{source.type}' to '{target.type}' converts between "
                "mismatching address spaces",
            )

    def _named_cast(self, index: int, pointers: dict[str, _Pointer]) -> None:
        tokens = self.tokens
        close = tokens.angle_end(index + 1) if tokens.text(index + 1) == "<" else None
        if close is None or tokens.text(close + 1) != "(":
            return
        space = next((i for i in range(index, close) if tokens.text(i) in SPACES), None)
        star = self._star(space) if space is not None else None
        if space is None or star is None or star + 1 != close:
            return
        target = self._pointer(space, star)
        source = self._operand(close + 2, pointers)
        if source is not None and source.space != target.space:
            text = f"{tokens.text(index)} from '{source.type}' to '{target.type}' is not allowed"
            self._refuse(index, text)

    def _initialiser(self, index: int, pointers: dict[str, _Pointer]) -> None:
        name, target = self._declaration(index)
        if name is None or target is None or self.tokens.text(name + 1) != "=":
            return
        source = self._operand(name + 2, pointers)
        if source is not None and source.space != target.space:
            self._refuse(
                name,
                f"cannot initialize a variable of type '{target.type}' with an lvalue of type "
                f"'{source.type}'",
            )

    def _operand(self, index: int, pointers: dict[str, _Pointer]) -> _Pointer | None:
        """The pointer that `p`, `p + i`, `(p + i)` or `&p[i]` leads to."""
        tokens = self.tokens
        if tokens.text(index) == "(":
            return self._operand(index + 1, pointers)
        if tokens.text(index) == "&":
            is_element = tokens.text(index + 2) == "["
            behind = tokens.text(tokens.after(index + 2)) if is_element else ""
            return pointers.get(tokens.text(index + 1)) if behind in _BEHIND_POINTER else None
        if tokens.text(index + 1) in _BEHIND_POINTER:
            return pointers.get(tokens.text(index))
        return None

    def _refuse(self, index: int, text: str) -> None:
        position = self.origins.position(self.tokens.tokens[index])
        self.problems.append(Problem(position, "error", text))
