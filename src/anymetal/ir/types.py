"""LLVM's types as objects, and their sizes and alignments.

Each type exists once (the factories are cached), so types are compared with `is` or `==` alike, and
`str` gives what LLVM prints.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

_TOKEN = re.compile(r'%(?:"[^"]*"|[-\w.$]+)|\w+|[<>{}\[\](),]')


class UnknownType(ValueError):
    """The text is no type this reader knows."""


class Type:
    """A type; `scalar` of a vector is its element, of every other type the type itself."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Type({self.text!r})"

    @property
    def scalar(self) -> Type:
        return self

    def with_scalar(self, scalar: Type) -> Type:
        """The same shape with other elements: <4 x half> and float give <4 x float>."""
        return scalar

    @property
    def is_integer(self) -> bool:
        return isinstance(self, Integer)

    @property
    def is_vector(self) -> bool:
        return isinstance(self, Vector)

    @property
    def is_compound(self) -> bool:
        return isinstance(self, Vector | Array | Structure | Named)


class Integer(Type):
    """`i1`, `i32`, ..."""

    __slots__ = ("bits",)

    def __init__(self, bits: int) -> None:
        super().__init__(f"i{bits}")
        self.bits = bits


class Float(Type):
    """`half`, `bfloat`, `float`, `double`, ..."""

    __slots__ = ("bits",)

    def __init__(self, text: str, bits: int) -> None:
        super().__init__(text)
        self.bits = bits


class Pointer(Type):
    """`ptr`, perhaps with an address space."""

    __slots__ = ("space",)

    def __init__(self, space: int) -> None:
        super().__init__(f"ptr addrspace({space})" if space else "ptr")
        self.space = space


class Vector(Type):
    """`<4 x float>`."""

    __slots__ = ("count", "element")

    def __init__(self, count: int, element: Type) -> None:
        super().__init__(f"<{count} x {element}>")
        self.count = count
        self.element = element

    @property
    def scalar(self) -> Type:
        return self.element

    def with_scalar(self, scalar: Type) -> Type:
        return vector(self.count, scalar)


class Array(Type):
    """`[4 x float]`."""

    __slots__ = ("count", "element")

    def __init__(self, count: int, element: Type) -> None:
        super().__init__(f"[{count} x {element}]")
        self.count = count
        self.element = element


class Structure(Type):
    """`{ i32, float }`, packed: `<{ i32, float }>`."""

    __slots__ = ("is_packed", "members")

    def __init__(self, members: tuple[Type, ...], is_packed: bool) -> None:
        inside = f"{{ {', '.join(map(str, members))} }}" if members else "{}"
        super().__init__(f"<{inside}>" if is_packed else inside)
        self.members = members
        self.is_packed = is_packed


class Named(Type):
    """`%struct.Pair`; what it stands for is in the module (`Module.types`)."""

    __slots__ = ()


@functools.cache
def integer(bits: int) -> Integer:
    return Integer(bits)


@functools.cache
def pointer(space: int = 0) -> Pointer:
    return Pointer(space)


@functools.cache
def vector(count: int, element: Type) -> Vector:
    return Vector(count, element)


@functools.cache
def array(count: int, element: Type) -> Array:
    return Array(count, element)


@functools.cache
def structure(*members: Type, is_packed: bool = False) -> Structure:
    return Structure(members, is_packed)


@functools.cache
def named(name: str) -> Named:
    return Named(name)


VOID, LABEL, TOKEN, METADATA, OPAQUE = map(Type, ("void", "label", "token", "metadata", "opaque"))
HALF, BFLOAT, FLOAT, DOUBLE = (
    Float(text, bits)
    for text, bits in (("half", 16), ("bfloat", 16), ("float", 32), ("double", 64))
)
I1, I8, I16, I32, I64 = map(integer, (1, 8, 16, 32, 64))
PTR = pointer()
_WORDS: dict[str, Type] = {
    kind.text: kind
    for kind in (VOID, LABEL, TOKEN, METADATA, OPAQUE, HALF, BFLOAT, FLOAT, DOUBLE, PTR)
}
_WORDS |= {name: Float(name, bits) for name, bits in (("x86_fp80", 80), ("fp128", 128))}


def word_type(word: str) -> Type | None:
    """The type that is one word, `i32` or `float`; None for every other word."""
    found = _WORDS.get(word)
    if found is None and word[:1] == "i" and word[1:].isdigit():
        found = _WORDS[word] = integer(int(word[1:]))
    return found


def boolean_like(kind: Type) -> Type:
    """The type of a comparison's result."""
    return kind.with_scalar(I1)


@functools.cache
def type_of(text: str) -> Type:
    """Reads a type from its text."""
    tokens = _TOKEN.findall(text)
    try:
        kind, position = read_type(tokens, 0)
    except IndexError:
        raise UnknownType(f"no whole type: {text!r}") from None
    if position != len(tokens):
        raise UnknownType(f"more than a type: {text}")
    return kind


def read_type(tokens: list[str], at: int) -> tuple[Type, int]:
    """The type that begins at a token, and where the next thing begins."""
    token = tokens[at] if at < len(tokens) else ""
    simple = word_type(token)
    if simple is PTR and tokens[at + 1 : at + 3] == ["addrspace", "("]:
        return pointer(int(tokens[at + 3])), at + 5
    if simple is not None:
        return simple, at + 1
    if token[:1] == "%":
        return named(token), at + 1
    if token == "<" and tokens[at + 1] == "{":
        members, after = _read_members(tokens, at + 2)
        return structure(*members, is_packed=True), after + 1
    if token == "{":
        members, after = _read_members(tokens, at + 1)
        return structure(*members), after
    if token in ("<", "["):
        element, after = read_type(tokens, at + 3)
        make = vector if token == "<" else array
        return make(int(tokens[at + 1]), element), after + 1
    raise UnknownType(f"expected a type, not {token!r}")


def _read_members(tokens: list[str], at: int) -> tuple[list[Type], int]:
    """The types up to a closing brace, and what stands behind it."""
    members: list[Type] = []
    while tokens[at] != "}":
        member, at = read_type(tokens, at)
        members.append(member)
        if tokens[at] == ",":
            at += 1
    return members, at + 1


class Layout:
    """Sizes and alignments on the 64-bit targets we compile for; `types` are the module's."""

    def __init__(self, types: Mapping[str, Type] | None = None) -> None:
        self._types = types or {}
        self._sizes: dict[Type, int] = {}

    def resolved(self, kind: Type) -> Type:
        """What a named type stands for; other types as they are."""
        return self._types[kind.text] if isinstance(kind, Named) else kind

    def parts(self, kind: Type) -> tuple[Type, ...]:
        """The types of a vector's, array's or structure's direct parts; none for a scalar."""
        kind = self.resolved(kind)
        if isinstance(kind, Structure):
            return kind.members
        if isinstance(kind, Vector | Array):
            return (kind.element,) * kind.count
        return ()

    def leaves(self, kind: Type) -> list[Type]:
        """The scalars a type is made of."""
        parts = self.parts(kind)
        return [leaf for part in parts for leaf in self.leaves(part)] if parts else [kind]

    def bits(self, kind: Type) -> int:
        """Of a scalar or vector."""
        if isinstance(kind, Vector):
            return kind.count * self.bits(kind.element)
        if isinstance(kind, Integer | Float):
            return kind.bits
        if isinstance(kind, Pointer):
            return 64
        raise UnknownType(f"no size is known for the type {kind}")

    def access_size(self, kind: Type) -> int:
        """Bytes that a load or store touches: 12 for <3 x float>."""
        resolved = self.resolved(kind)
        if isinstance(resolved, Structure | Array):
            return self.size(resolved)
        return -(-self.bits(resolved) // 8)

    def size(self, kind: Type) -> int:
        """Bytes from one element of an array to the next: 16 for <3 x float>."""
        if kind not in self._sizes:
            self._sizes[kind] = self._measured(self.resolved(kind))
        return self._sizes[kind]

    def _measured(self, kind: Type) -> int:
        if isinstance(kind, Array):
            return kind.count * self.size(kind.element)
        if isinstance(kind, Structure):
            end = self._end(kind.members, kind.is_packed)
            return _rounded(end, self.align(kind))
        return _rounded(self.access_size(kind), self.align(kind))

    def align(self, kind: Type) -> int:
        kind = self.resolved(kind)
        if isinstance(kind, Array):
            return self.align(kind.element)
        if isinstance(kind, Structure):
            return 1 if kind.is_packed else max(map(self.align, kind.members), default=1)
        return 1 << (self.access_size(kind) - 1).bit_length()

    def offset(self, kind: Type, index: int) -> int:
        """Bytes from the start of a vector, array or structure to its part number `index`."""
        kind = self.resolved(kind)
        if isinstance(kind, Structure):
            end = self._end(kind.members[:index], kind.is_packed)
            return end if kind.is_packed else _rounded(end, self.align(kind.members[index]))
        assert isinstance(kind, Vector | Array), kind
        step = self.access_size if isinstance(kind, Vector) else self.size
        return index * step(kind.element)

    def _end(self, members: tuple[Type, ...], is_packed: bool) -> int:
        """Bytes up to the end of the last member."""
        end = 0
        for member in members:
            end = (end if is_packed else _rounded(end, self.align(member))) + self.size(member)
        return end


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
