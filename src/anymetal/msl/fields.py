"""The tokens of a struct -> the names of its fields, from which clang tells offsets and types.

Only the names come from here. A struct whose fields the tokens do not tell (bases, bit-fields,
unions) has none: it can still be bound as bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from anymetal.msl.integers import Integers
from anymetal.msl.structure import Class, Enum, Scope, Structure, Variable
from anymetal.nouns import DeclaredField

_NOT_FIELDS = frozenset({"static", "constexpr", "using", "typedef", "friend"})


class Fields:
    """The structs of a translation unit, by name."""

    def __init__(self, structure: Structure, integers: Integers) -> None:
        self.structure = structure
        self.integers = integers
        self.tokens = structure.tokens

    def of_type(self, type_: Iterable[int], scope: Scope) -> tuple[DeclaredField, ...]:
        """The fields of the struct that the tokens of a type name; none where it is no struct."""
        found = self._class_of([self.tokens.text(index) for index in type_], scope)
        return self._of_class(found.body[0]) if found is not None else ()

    def _class_of(
        self, words: list[str], scope: Scope, seen: frozenset[str] = frozenset()
    ) -> Class | None:
        """`seen` are aliases on the way here: a member may name one of another class's like it."""
        words = words[: words.index("<")] if "<" in words else words
        for word in reversed(words):
            if word in self._aliases and word not in self._classes and word not in seen:
                start, end = self._aliases[word]
                behind = [self.tokens.text(i) for i in range(start, end)]
                return self._class_of(behind, scope, seen | {word})
            if word in self._classes:
                return _nearest(self._classes[word], scope)
        return None

    @functools.cached_property
    def _classes(self) -> dict[str, list[Class]]:
        found: dict[str, list[Class]] = {}
        for class_ in self.structure.classes:
            name = class_.name
            if not name and self.tokens.text(class_.end + 1) == ";":
                name = self.tokens.text(class_.end)  # typedef struct {...} name;
            found.setdefault(name, []).append(class_)
        return found

    @functools.cached_property
    def _aliases(self) -> dict[str, tuple[int, int]]:
        """The tokens of the type behind each alias."""
        found = {}
        for alias in self.structure.aliases:
            first, last = alias.head, alias.end - 1
            if self.tokens.text(first) == "typedef":
                found[self.tokens.text(last - 1)] = (first + 1, last - 1)
            elif self.tokens.text(first + 2) == "=":
                found[self.tokens.text(first + 1)] = (first + 3, last)
        return found

    @functools.cached_property
    def _by_opening(self) -> dict[int, Class]:
        return {class_.body[0]: class_ for class_ in self.structure.classes}

    @functools.cache  # noqa: B019  (lives as long as one preparation)
    def _of_class(self, opening: int) -> tuple[DeclaredField, ...]:
        class_ = self._by_opening[opening]
        if not self._is_plain(class_):
            return ()
        inside = [v for v in self.structure.variables if v.scope.opening == opening]
        fields: list[DeclaredField] = []
        for variable in inside:
            declared = list(self._declared(variable))
            if None in declared:
                return ()
            fields += [field for field in declared if field is not None]
        return tuple(fields)

    def _is_plain(self, class_: Class) -> bool:
        """A struct without bases whose fields are declared apart from their types."""
        texts = self.tokens.texts
        if ":" in texts[class_.head : class_.body[0]] or "union" in texts[class_.head : class_.end]:
            return False
        inner = (c for c in self.structure.classes if c.scope.opening == class_.body[0])
        return all(self.tokens.text(c.body[1] + 1) == ";" for c in inner)

    def _declared(self, variable: Variable) -> Iterator[DeclaredField | None]:
        """`T a, b[4];` one by one; None for what cannot be told, such as a bit-field."""
        tokens = self.tokens
        if any(tokens.text(i) in _NOT_FIELDS for i in range(variable.head, variable.end)):
            return
        type_: list[int] = []
        for start, end in tokens.split_commas(variable.head, variable.end - 1):
            name, extents = self._declarator(start, end)
            if name is None:
                yield None
                return
            type_ = type_ or list(range(variable.head, name))
            inner = () if "*" in map(tokens.text, type_) else self.of_type(type_, variable.scope)
            named = next((e for e in self._enums if e in map(tokens.text, type_)), None)
            values = () if named is None else self._enumerators(self._enums[named])
            yield DeclaredField(tokens.text(name), extents, inner, values)

    @functools.cached_property
    def _enums(self) -> dict[str, Enum]:
        """By name: the last word in front of the braces or the underlying type."""
        found = {}
        for enum in self.structure.enums:
            head = self.tokens.texts[enum.head : enum.body[0]]
            found[(head[: head.index(":")] if ":" in head else head)[-1]] = enum
        return found

    def _enumerators(self, enum: Enum) -> tuple[tuple[str, int], ...]:
        parts = self.tokens.split_commas(enum.body[0] + 1, enum.body[1])
        names = [self.tokens.text(first) for first, _ in parts]
        known = self.integers.values
        return tuple((name, known[name]) for name in names if name in known)

    def _declarator(self, start: int, end: int) -> tuple[int | None, int]:
        """The name one declarator declares, and how many extents stand behind it."""
        tokens = self.tokens
        name, extents = None, 0
        index = start
        while index < end and tokens.text(index) not in ("=", "{"):
            text = tokens.text(index)
            if text in (":", "(", "&"):
                return None, 0
            if text == "<" and (close := tokens.angle_end(index)) is not None:
                index = close
            elif text == "[" and not tokens.is_attribute(index):
                extents += 1
            elif tokens.is_name(index):
                name = index
            index = tokens.after(index)
        return name, extents


def _nearest(classes: list[Class], scope: Scope) -> Class:
    """Among classes of one name, the one in the innermost namespace around the place of use."""

    def depth(class_: Class) -> int:
        path = class_.scope.path
        return len(path) if scope.path[: len(path)] == path else -1

    return max(classes, key=depth)
