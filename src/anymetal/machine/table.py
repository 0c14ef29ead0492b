"""A table in Python -> a ctypes structure and the C++ header that declares the same.

The headers are kept in the tree, where a reader of the C++ finds them. `python tools/headers.py`
writes them; whoever compiles one calls `check` first, and the compiler asserts every offset.
"""

from __future__ import annotations

import ctypes
import enum
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from anymetal.errors import ToolchainError

_SCALARS: dict[str, tuple[Any, str]] = {
    "char": (ctypes.c_char, "c"),
    "unsigned short": (ctypes.c_uint16, "H"),
    "int": (ctypes.c_int32, "i"),
    "unsigned": (ctypes.c_uint32, "I"),
    "long": (ctypes.c_int64, "q"),
    "unsigned long": (ctypes.c_uint64, "Q"),
    "double": (ctypes.c_double, "d"),
}
_POINTER: tuple[Any, str] = (ctypes.c_uint64, "Q")
_COLUMNS = 100


class Structure(ctypes.Structure):
    """A structure that C++ knows under the name `cpp`."""

    cpp: ClassVar[str]
    members: ClassVar[tuple[Member, ...]]


@dataclass(frozen=True)
class Member:
    """One member: a C++ type or a Structure, the lengths of its array, and what it is for."""

    type: str | type[Structure]
    counts: tuple[int, ...]
    note: str
    align: int
    name: str = ""

    @property
    def spelling(self) -> str:
        return self.type if isinstance(self.type, str) else self.type.cpp

    @property
    def ctype(self) -> Any:
        kind: Any = self.type if not isinstance(self.type, str) else _scalar(self.type)[0]
        for count in reversed(self.counts):
            kind *= count
        return kind


def _scalar(spelling: str) -> tuple[Any, str]:
    return _POINTER if spelling.endswith("*") else _SCALARS[spelling]


def member(type: str | type[Structure], *counts: int, note: str = "", align: int = 0) -> Any:
    """Declares a member in the body of a Structure; a pointer is an address, as an integer."""
    return Member(type, counts, note, align)


Declared = TypeVar("Declared", bound=type[Structure])


def table(cpp: str) -> Callable[[Declared], Declared]:
    """Completes a Structure whose members its body declares."""

    def complete(cls: Declared) -> Declared:
        own = {n: m for n, m in vars(cls).items() if isinstance(m, Member)}
        cls.cpp = cpp
        cls.members = tuple(
            Member(m.type, m.counts, m.note, m.align, name) for name, m in own.items()
        )
        cls._fields_ = tuple(_fields(cls.members))
        return cls

    return complete


def _fields(members: Sequence[Member]) -> Iterator[tuple[str, Any]]:
    """The members as ctypes wants them: padded where one is aligned beyond its type."""
    offset = 0
    for entry in members:
        if entry.align:
            yield f"before_{entry.name}", ctypes.c_char * (-offset % entry.align)
            offset += -offset % entry.align
        offset += -offset % ctypes.alignment(entry.ctype)
        yield entry.name, entry.ctype
        offset += ctypes.sizeof(entry.ctype)
    widest = max((entry.align for entry in members), default=0)
    if widest:
        yield "at_the_end", ctypes.c_char * (-offset % widest)


def offset_of(structure: type[Structure], name: str) -> int:
    """Bytes from the start of a structure to its member."""
    return int(getattr(structure, name).offset)


def size_of(structure: type[Structure], name: str) -> int:
    """Bytes of a member."""
    return int(getattr(structure, name).size)


def packer(structure: type[Structure], first: str, last: str) -> struct.Struct:
    """Packs consecutive members of a structure, the first to the last, at once."""
    names = [entry.name for entry in structure.members]
    wanted = structure.members[names.index(first) : names.index(last) + 1]
    start = place = offset_of(structure, first)
    codes = "="
    for entry in wanted:
        gap = offset_of(structure, entry.name) - place
        assert isinstance(entry.type, str)
        count = ctypes.sizeof(entry.ctype) // ctypes.sizeof(_scalar(entry.type)[0])
        codes += f"{gap}x" if gap else ""
        codes += f"{count}{_scalar(entry.type)[1]}"
        place = offset_of(structure, entry.name) + size_of(structure, entry.name)
    packed = struct.Struct(codes)
    assert packed.size == place - start, codes
    return packed


class Enumeration(enum.IntEnum):
    """Numbers with names that C++ knows too; `Enum.of` says under which."""

    note: str

    def __new__(cls, value: int, note: str = "") -> Enumeration:
        entry = int.__new__(cls, value)
        entry._value_ = value
        entry.note = note
        return entry

    def __str__(self) -> str:
        return str(int(self))


@dataclass(frozen=True)
class Enum:
    """An enumeration as C++ has it: its name there, and what stands before the names of values."""

    values: Mapping[str, int]
    cpp: str
    note: str = ""
    prefix: str = "AM_"
    notes: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(values: type[Enumeration], cpp: str, prefix: str = "AM_") -> Enum:
        numbers = {entry.name: int(entry) for entry in values}
        notes = {entry.name: entry.note for entry in values}
        return Enum(numbers, cpp, _doc(values), prefix, notes)


@dataclass(frozen=True)
class Header:
    """A C++ header made of tables."""

    path: Path
    made_by: str
    includes: tuple[str, ...] = ()
    constants: Mapping[str, int] = field(default_factory=dict)
    enums: tuple[Enum, ...] = ()
    structures: tuple[type[Structure], ...] = ()

    def text(self) -> str:
        parts = [
            f"// Made by `python tools/headers.py` from {self.made_by}: change that.\n"
            "// clang-format off\n#pragma once\n",
            "".join(f"#include {name}\n" for name in self.includes),
            "".join(f"constexpr unsigned {n} = {v}u;\n" for n, v in self.constants.items()),
            *(_enum_text(entry) for entry in self.enums),
            *(_structure_text(structure) for structure in self.structures),
        ]
        return "\n".join(part for part in parts if part)

    def check(self) -> None:
        """Raises where the header is not what its tables say: C++ would read other members."""
        if self.path.read_text() != self.text():
            raise ToolchainError(
                f"{self.path.name} is not what {self.made_by} says; run python tools/headers.py"
            )


def _enum_text(entry: Enum) -> str:
    lines = [
        _noted(f"  {entry.prefix}{name} = {value},", entry.notes.get(name, ""))
        for name, value in entry.values.items()
    ]
    return f"{_comment(entry.note)}enum {entry.cpp} : unsigned {{\n{''.join(lines)}}};\n"


def _structure_text(structure: type[Structure]) -> str:
    lines = [_noted(f"  {_declaration(entry)};", entry.note) for entry in structure.members]
    checks = [
        f"static_assert(__builtin_offsetof({structure.cpp}, {entry.name}) == "
        f"{offset_of(structure, entry.name)});\n"
        for entry in structure.members
    ]
    size = f"static_assert(sizeof({structure.cpp}) == {ctypes.sizeof(structure)});\n"
    body = f"struct {structure.cpp} {{\n{''.join(lines)}}};\n"
    return _comment(_doc(structure)) + body + "".join(checks) + size


def _declaration(entry: Member) -> str:
    align = f"alignas({entry.align}) " if entry.align else ""
    return f"{align}{entry.spelling} {entry.name}{''.join(f'[{n}]' for n in entry.counts)}"


def _noted(line: str, note: str) -> str:
    if not note:
        return f"{line}\n"
    if len(line) + len(note) + 5 > _COLUMNS:
        return f"  // {note}\n{line}\n"
    return f"{line}  // {note}\n"


def _doc(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split())


def _comment(text: str) -> str:
    """A comment of lines that are not too long."""
    lines, line = [], "//"
    for word in text.split():
        if len(line) + len(word) + 1 > _COLUMNS:
            lines.append(line)
            line = "//"
        line += f" {word}"
    return "".join(f"{entry}\n" for entry in [*lines, line]) if text else ""
