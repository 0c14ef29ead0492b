"""What an instruction works on: a value with its type. Constants are made here."""

from __future__ import annotations

import re
from typing import NamedTuple

from anymetal.ir.types import I1, I32, I64, PTR, Float, Pointer, Type, Vector


class Operand(NamedTuple):
    """A value and its type. `text` is as LLVM prints it: `%x`, `@table`, `7`, `poison`, ..."""

    type: Type
    text: str

    @property
    def is_name(self) -> bool:
        """Whether it is a value of the function: a parameter or an instruction's result."""
        return self.text.startswith("%")

    @property
    def is_global(self) -> bool:
        return self.text.startswith("@")

    @property
    def integer(self) -> int | None:
        """The number, if it is a literal one."""
        if self.text.lstrip("-").isdigit():
            return int(self.text)
        return {"true": 1, "false": 0}.get(self.text)

    @property
    def string(self) -> str | None:
        """The text of a constant array of characters, without zeros behind it."""
        if not self.text.startswith('c"'):
            return None
        return _ESCAPE.sub(_unescaped, self.text[2:-1]).rstrip("\0")

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


_ESCAPE = re.compile(r"\\(\\|[0-9A-F]{2})")


def _unescaped(match: re.Match[str]) -> str:
    return "\\" if match[1] == "\\" else chr(int(match[1], 16))


def constant(kind: Type, number: int) -> Operand:
    """An integer; in all elements of a vector."""
    scalar = kind.scalar
    text = str(number) if scalar is not I1 else "true" if number else "false"
    return Operand(kind, f"splat ({scalar} {text})" if isinstance(kind, Vector) else text)


def i32(number: int) -> Operand:
    return Operand(I32, str(number))


def i64(number: int) -> Operand:
    return Operand(I64, str(number))


def boolean(truth: bool) -> Operand:
    return constant(I1, int(truth))


def zero(kind: Type) -> Operand:
    """Zero of any type."""
    if isinstance(kind, Pointer):
        return Operand(kind, "null")
    if isinstance(kind, Float):
        return Operand(kind, "0.000000e+00" if kind.bits > 16 else _SHORT_ZEROS[kind.text])
    return constant(kind, 0) if kind.is_integer else Operand(kind, "zeroinitializer")


_SHORT_ZEROS = {"half": "0xH0000", "bfloat": "0xR0000"}
NULL = zero(PTR)


def poison(kind: Type) -> Operand:
    return Operand(kind, "poison")


def named_global(name: str) -> Operand:
    """The address of a global or function."""
    return Operand(PTR, f"@{name}")
