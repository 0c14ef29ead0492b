"""Values of function constants, checked against the types that the source declares."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from anymetal.nouns import ConstantValue, Scalar

_BITS = {"char": 8, "short": 16, "int": 32, "long": 64}
_UNSIGNED = {
    **{
        spelling: bits
        for name, bits in _BITS.items()
        for spelling in (f"u{name}", f"unsigned {name}")
    },
    **{f"uint{bits}_t": bits for bits in _BITS.values()},
    "unsigned": 32,
    "size_t": 64,
}
_SIGNED = {**_BITS, **{f"int{bits}_t": bits for bits in _BITS.values()}, "ptrdiff_t": 64}
_RANGES = {
    **{name: (-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in _SIGNED.items()},
    **{name: (0, (1 << bits) - 1) for name, bits in _UNSIGNED.items()},
    "half": (-65504.0, 65504.0),
    "float": (-3.4028234663852886e38, 3.4028234663852886e38),
}
_VECTOR = re.compile(r"(bool|u?char|u?short|u?int|u?long|half|bfloat|float)([2-4])")
_TEMPLATE = re.compile(r"vec\s*<\s*(?:metal\s*::\s*)?([\w ]+?)\s*,\s*([2-4])\s*>")


def elements_of(kind: str) -> tuple[str, int]:
    """The type of a vector's elements, and how many it has; 1 of what is no vector."""
    kind = re.sub(r"\bmetal\s*::\s*", "", kind)
    vector = _VECTOR.fullmatch(kind) or _TEMPLATE.fullmatch(kind)
    return (vector[1], int(vector[2])) if vector else (kind, 1)


def checked(kernel: str, name: str, kind: str, value: object) -> ConstantValue:
    """A function constant's value as its type has it."""
    element, count = elements_of(kind)
    if count == 1:
        return _scalar(kernel, name, kind, kind, value)
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != count:
        raise TypeError(
            f"{kernel}: function constant '{name}' is a {kind}, but its value is {value!r}:"
            f" expected {count} numbers, ({', '.join(['0'] * count)})"
        )
    return tuple(_scalar(kernel, name, kind, element, one) for one in value)


def _scalar(kernel: str, name: str, kind: str, element: str, value: object) -> Scalar:
    wanted = _python_type(element)
    if not isinstance(value, wanted) and not (wanted is float and isinstance(value, int)):
        raise TypeError(
            f"{kernel}: function constant '{name}' is a {kind}, but its value is {value!r}"
        )
    if not _fits(element, value):
        low, high = _RANGES[element]
        raise ValueError(
            f"{kernel}: function constant '{name}' is a {kind}, {low} to {high}, but its value"
            f" is {value!r}"
        )
    return wanted(value)


def _fits(kind: str, value: float) -> bool:
    """Whether a type holds a value; floating types hold infinities and NaN besides their range."""
    if kind not in _RANGES or not math.isfinite(value):
        return True
    low, high = _RANGES[kind]
    return low <= value <= high


def _python_type(kind: str) -> type[bool] | type[int] | type[float]:
    if kind == "bool":
        return bool
    return float if kind in ("float", "half", "bfloat") else int
