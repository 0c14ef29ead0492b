"""Metal's spelling of a parameter's type -> the numbers it holds; tensors and Python's numbers in
the same terms."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Literal

import torch

Sort = Literal["float", "signed", "unsigned", "bool"]


@dataclass(frozen=True)
class Scalar:
    """A type of one number; a float's name is that of torch's dtype."""

    name: str
    sort: Sort
    size: int

    @property
    def is_byte(self) -> bool:
        """Whether it is what raw bytes are taken for: `device uchar*` over any data is common."""
        return self.size == 1 and self.sort != "bool"

    def holds(self, value: int) -> bool:
        """Whether an integer is among its values."""
        if self.sort == "bool":
            return value in (0, 1)
        bits = 8 * self.size
        low, high = (-(1 << bits - 1), 1 << bits - 1) if self.sort == "signed" else (0, 1 << bits)
        return low <= value < high


_SCALARS: dict[str, Scalar] = {
    "bool": Scalar("bool", "bool", 1),
    "half": Scalar("float16", "float", 2),
    "bfloat": Scalar("bfloat16", "float", 2),
    "float": Scalar("float32", "float", 4),
    "signed char": Scalar("int8", "signed", 1),
}
for _bytes, _name in ((1, "char"), (2, "short"), (4, "int"), (8, "long")):
    _SCALARS[_name] = Scalar(f"int{8 * _bytes}", "signed", _bytes)
    _SCALARS[f"u{_name}"] = Scalar(f"uint{8 * _bytes}", "unsigned", _bytes)
_NUMBERS = re.compile(rf"(?:packed_)?({'|'.join(_SCALARS)})([234])?(?:x([234]))?((?:\[\d+\])*)")
_ARRAY = re.compile(r"array<(.*), (\d+)>")
_ATOMIC = re.compile(r"atomic<(.*)>")
_CASTS = {"fp16": "half", "bf16": "bfloat", "int32": "int", "int16": "short", "int8": "char",
          "uint8": "uchar"}  # fmt: skip


@dataclass(frozen=True)
class Numbers:
    """What a parameter holds: numbers of one type, `count` of them where it is no pointer."""

    scalar: Scalar
    count: int


@functools.cache
def numbers_of(type_: str) -> Numbers | None:
    """The numbers of a type, also of vectors, matrices and arrays; None for any other type."""
    if match := _ATOMIC.fullmatch(type_):
        return numbers_of(match[1])
    if match := _ARRAY.fullmatch(type_):
        inner = numbers_of(match[1])
        return Numbers(inner.scalar, inner.count * int(match[2])) if inner else None
    match = _NUMBERS.fullmatch(type_)
    if match is None:
        return None
    count = int(match[2] or 1) * int(match[3] or 1)
    for extent in re.findall(r"\d+", match[4]):
        count *= int(extent)
    return Numbers(_SCALARS[match[1]], count)


@functools.cache
def scalar_of_dtype(dtype: torch.dtype) -> Scalar:
    """The numbers in a tensor; a complex one has two real ones for each."""
    if dtype.is_complex:
        return scalar_of_dtype(dtype.to_real())
    name = str(dtype).removeprefix("torch.")
    sort: Sort = "unsigned"
    if dtype.is_floating_point:
        sort = "float"
    elif dtype == torch.bool:
        sort = "bool"
    elif dtype.is_signed:
        sort = "signed"
    return Scalar(name, sort, dtype.itemsize)


def scalar_of_number(value: Any, cast: str | None) -> Scalar:
    """As what a Python number arrives: an int as int64, a float as float32, or as it is cast."""
    if cast is not None:
        return _SCALARS[_CASTS[cast]]
    return _SCALARS["long" if isinstance(value, int) else "float"]
