"""Structs that say what their fields are: `ctypes.Structure`, numpy's records and `struct(...)`.

Their values are packed by name, as Metal lays them out, and their types must be the kernel's.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy

_FIELD = re.compile(r"((?:unsigned |signed )?\w+)\s+(\w+)((?:\s*\[\s*\d+\s*\])*)")
_LETTERS = {"bool": "b", "half": "f", "float": "f", "bfloat": "f"}
_SIZES = {"bool": 1, "char": 1, "short": 2, "half": 2, "bfloat": 2, "int": 4, "float": 4, "long": 8}
_CTYPES_LETTERS = {"?": "b", "f": "f", "d": "f"}


class Struct(Mapping[str, Any]):
    """Values by name with the types that the caller believes them to have."""

    def __init__(self, fields: Mapping[str, str], values: Mapping[str, Any]) -> None:
        self.fields = dict(fields)  # the type of each, arrays with their extents
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        parts = (f"{kind} {name} = {self._values[name]!r}" for name, kind in self.fields.items())
        return f"struct({'; '.join(parts)})"


def struct(declaration: str, /, **values: Any) -> Struct:
    """A kernel's struct argument: `struct("uint n; float eps", n=3, eps=1e-5)`.

    The declaration is checked against the kernel's own struct when it is launched: the same fields
    in the same order, of the same types.
    """
    fields: dict[str, str] = {}
    for part in filter(None, (text.strip() for text in declaration.split(";"))):
        match = _FIELD.fullmatch(part)
        if match is None:
            raise ValueError(f"struct: {part!r} is no field; write a type and a name: 'uint n'")
        kind, name, extents = match.groups()
        if name in fields:
            raise ValueError(f"struct: field '{name}' is declared twice")
        fields[name] = kind + extents.replace(" ", "")
    for name in values:
        if name not in fields:
            raise TypeError(f"struct: a value for '{name}', which is not declared")
    for name, kind in fields.items():
        if name not in values:
            raise TypeError(f"struct: no value for '{kind} {name}'")
    return Struct(fields, {name: values[name] for name in fields})


def is_record(value: object) -> bool:
    """Whether a value is a struct of ctypes or numpy."""
    if isinstance(value, ctypes.Structure):
        return True
    return isinstance(value, numpy.void) and value.dtype.names is not None


def record_values(value: Any) -> dict[str, Any]:
    """The values of a record by name."""
    if isinstance(value, ctypes.Structure):
        return {name: getattr(value, name) for name in _ctypes_fields(type(value))}
    return {name: _plain(value[name]) for name in value.dtype.names}


def declared_types(value: Any) -> dict[str, str] | None:
    """What each field is said to be: a spelling, or `f4`, `i8` for a number; None: nothing is said.

    Fields that are structs or arrays of them are checked when they are packed.
    """
    if isinstance(value, Struct):
        return value.fields
    if isinstance(value, ctypes.Structure):
        fields = _ctypes_fields(type(value))
        return {name: _ctypes_word(kind) for name, kind in fields.items()}
    if is_record(value):
        return {name: _numpy_word(value.dtype[name]) for name in value.dtype.names}
    return None


def agrees(said: str, spelled: str, scalar: str) -> bool:
    """Whether a declaration fits a field: its spelling, and the scalar type in it."""
    if not said or said == spelled:
        return True
    base = scalar.removeprefix("u").removeprefix("signed ")
    letter = _LETTERS.get(scalar, "u" if scalar.startswith("u") else "i")
    return said == f"{letter}{_SIZES.get(base, 0)}"


def _plain(value: Any) -> Any:
    """A number or a list; a record inside stays one."""
    return value if is_record(value) else value.tolist()


def _ctypes_fields(kind: type[ctypes.Structure]) -> dict[str, Any]:
    """All fields, those of bases first; bit-fields have a third part that is no type."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        found.update({field[0]: field[1] for field in base.__dict__.get("_fields_", ())})
    return found


def _ctypes_word(kind: Any) -> str:
    while hasattr(kind, "_length_"):
        kind = kind._type_
    if not isinstance(getattr(kind, "_type_", None), str):
        return ""
    code = kind._type_
    letter = _CTYPES_LETTERS.get(code, "u" if code.isupper() else "i")
    return f"{letter}{ctypes.sizeof(kind)}"


def _numpy_word(kind: numpy.dtype[Any]) -> str:
    kind = kind.base
    return "" if kind.names else f"{kind.kind}{kind.itemsize}"
