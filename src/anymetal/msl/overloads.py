"""Definitions that differ in address spaces only become one.

`T get(device T*)` and `T get(threadgroup T*)` are the same function in C++. The first is kept; that
the others say the same is checked token by token: a dropped body that differs is a silent error.
"""

from __future__ import annotations

from anymetal.msl.address_spaces import is_constructor
from anymetal.msl.builtins import SPACES
from anymetal.msl.diagnostics import Problem
from anymetal.msl.edits import Edits
from anymetal.msl.reflect import declared_name
from anymetal.msl.source_map import Origins
from anymetal.msl.structure import Class, Declaration, Function, Structure
from anymetal.msl.tokens import TokenRange


class OverloadMerger:
    """Finds repeated heads in each scope, removes the repetitions and reports those that differ."""

    def __init__(self, structure: Structure, edits: Edits, origins: Origins) -> None:
        self.structure = structure
        self.tokens = structure.tokens
        self.edits = edits
        self.origins = origins
        self.problems: list[Problem] = []
        self.dropped: set[int] = set()  # where the declarations that were removed start

    def run(self) -> None:
        kept: dict[tuple[object, ...], Declaration] = {}
        for declaration in sorted(
            [*self.structure.functions, *self.structure.classes], key=lambda item: item.start
        ):
            key = self._key(declaration)
            if key is None:
                continue
            first = kept.setdefault(key, declaration)
            if first is declaration or self._exact(declaration) == self._exact(first):
                continue  # the first of its kind, or a true redefinition, which clang reports
            body, first_body = self._body(declaration), self._body(first)
            if body and first_body and body != first_body:
                self._differ(declaration, first)
            self.edits.remove(declaration.start, declaration.end)
            self.dropped.add(declaration.start)

    def _key(self, declaration: Declaration) -> tuple[object, ...] | None:
        """The head without spaces, parameter names and default arguments; None: never merged."""
        scope = declaration.scope
        where = (scope.kind, scope.path, scope.opening)
        if isinstance(declaration, Class):
            if not declaration.name:
                return None
            head = _plain(self.tokens, declaration.start, declaration.body[0], {})
            return (*where, "class", *head)
        if not isinstance(declaration, Function):
            return None
        if declaration.body is None and scope.kind == "namespace":
            return None  # a prototype may be repeated
        opening, close = declaration.parameters
        renamed = self._parameter_names(declaration)
        head = _plain(self.tokens, declaration.start, opening, renamed)
        parameters = [
            tuple(_plain(self.tokens, first, self._without_default(first, last), renamed))
            for first, last in self.tokens.split_commas(opening + 1, close)
        ]
        qualifiers = self._qualifiers(declaration)
        return (*where, *head, *parameters, *qualifiers)

    def _qualifiers(self, function: Function) -> list[str]:
        """What stands between the parameters and the body; a constructor's spaces do not count."""
        if is_constructor(self.tokens, function):
            return []
        end = function.initialisers
        if end is None:
            end = function.body[0] if function.body else function.end - 1
        stop = function.parameters[1] + 1
        while stop < end and self.tokens.text(stop) != "=":
            stop += 1
        return _plain(self.tokens, function.parameters[1] + 1, stop, {})

    def _body(self, declaration: Declaration) -> tuple[str, ...]:
        if isinstance(declaration, Class):
            return tuple(_plain(self.tokens, declaration.body[0], declaration.end, {}))
        if not isinstance(declaration, Function) or declaration.body is None:
            return ()
        start = declaration.initialisers or declaration.body[0]
        renamed = self._parameter_names(declaration)
        return tuple(_plain(self.tokens, start, declaration.end, renamed))

    def _parameter_names(self, function: Function) -> dict[str, str]:
        """Parameters are compared by place: `f(device T* a)` equals `f(thread T* b)`."""
        opening, close = function.parameters
        names = {}
        for number, part in enumerate(self.tokens.split_commas(opening + 1, close)):
            name = declared_name(self.tokens, *part)
            if name is not None:
                names[self.tokens.text(name)] = f"${number}"
        return names

    def _without_default(self, first: int, last: int) -> int:
        index = first
        while index < last and self.tokens.text(index) != "=":
            index = self.tokens.after(index)
        return index

    def _exact(self, declaration: Declaration) -> list[str]:
        """The head with its spaces."""
        if isinstance(declaration, Class):
            return self.tokens.texts[declaration.start : declaration.body[0]]
        assert isinstance(declaration, Function)
        end = declaration.initialisers or (declaration.body or (declaration.end,))[0]
        names = self._parameter_names(declaration)
        return [names.get(text, text) for text in self.tokens.texts[declaration.start : end]]

    def _differ(self, declaration: Declaration, first: Declaration) -> None:
        name = declaration.head
        if isinstance(declaration, Function):
            name = declaration.name[0]
        first_name = first.name[0] if isinstance(first, Function) else first.head
        self.problems += [
            Problem(
                self.origins.position(self.tokens.tokens[name]),
                "error",
                "anymetal erases address spaces and cannot tell this definition from another one "
                "that does something else",
            ),
            Problem(
                self.origins.position(self.tokens.tokens[first_name]),
                "note",
                "the other definition is here",
            ),
        ]


def _plain(tokens: TokenRange, start: int, end: int, renamed: dict[str, str]) -> list[str]:
    """Texts of a range as they read once spaces are erased and attributes gone."""
    words: list[str] = []
    index = start
    while index < end:
        text = tokens.texts[index]
        if text == "[" and tokens.is_attribute(index):
            index = tokens.after(index)
            continue
        if tokens.tokens[index].kind == "string":
            text = tokens.tokens[index].text
        if text in SPACES:
            text = "const" if text == "constant" else ""
        if text == "const" and "const" in words[-1:]:
            text = ""
        if text:
            words.append(renamed.get(text, text))
        index += 1
    return _ordered(words)


def _ordered(words: list[str]) -> list[str]:
    """`T const` and `const T` mean the same in front of `*` and `&`; names after `.` stay."""
    for index in range(1, len(words)):
        if words[index] == "const" and words[index - 1].isidentifier():
            following = words[index + 1] if index + 1 < len(words) else ""
            if following in ("*", "&"):
                words[index - 1], words[index] = "const", words[index - 1]
    return words
