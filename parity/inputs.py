"""The bytes of a launch: a block of memory with all arguments, the same for both of a pair.

Buffers lie in one block with room between them, and whole blocks are compared afterwards: a stray
write is a difference too, and so is one that both make.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from anymetal.nouns import Argument, Field
from parity.launches.launch import SPECIAL, Launch, Value

_ROOM = 1 << 14  # bytes before and behind each buffer
_ALIGNED = 256
_SPECIAL = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, float("inf"), float("-inf"), float("nan")),
    *(1e-40, -1e-45, 6e-8, 65504.0, 3.3e38, -3.3e38, 2.0**31, -(2.0**63), 1e-30, 88.8),
)
_HARMLESS = (0.0, -0.0, 1e-40, -1e-45, 6e-8, 1.0)
_WHOLE = (0, 1, -1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 127, -128, 255, 32767, -(2**31), 2**31 - 1)
_UNWRITTEN = 0xA5


class NoValue(Exception):
    """The description of a launch leaves an argument out."""


@dataclass(frozen=True)
class Place:
    """Where an argument lies in the block."""

    argument: Argument
    start: int
    size: int


@dataclass(frozen=True)
class Inputs:
    """A launch's memory before it, and the places of its arguments."""

    block: torch.Tensor
    places: tuple[Place, ...]

    def arguments(self, block: torch.Tensor) -> list[torch.Tensor]:
        """The buffers of a copy of the block, by index; what is not bound is an empty place."""
        count = max((one.argument.index or 0 for one in self.places), default=-1) + 1
        found = [block[:0] for _ in range(count)]
        for one in self.places:
            found[one.argument.index or 0] = block[one.start : one.start + one.size]
        return found

    def inside(self) -> torch.Tensor:
        """Which bytes of the block are an argument's; the others are room between them."""
        found = torch.zeros(self.block.numel(), dtype=torch.bool)
        for one in self.places:
            found[one.start : one.start + one.size] = True
        return found

    def inverted(self) -> Inputs:
        """The same memory, but for booleans that are to be written, each the other one.

        Few results may all be what lay there before.
        """
        block = self.block.clone()
        for one in self.places:
            if one.argument.type == "bool" and not one.argument.is_const:
                block[one.start : one.start + one.size] ^= 1
        return Inputs(block, self.places)


def make_inputs(kernel: str, table: Sequence[Argument], launch: Launch) -> Inputs:
    """The memory of a launch; the same for the same name."""
    generator = torch.Generator().manual_seed(zlib.crc32(kernel.encode()))
    start, parts, places = _ROOM, [], []
    filled = 0
    for one in table:
        if one.role != "buffer":
            continue
        content = _content(one, launch, generator, filled)
        filled += one.is_const and one.name not in launch.values
        places.append(Place(one, start, content.numel()))
        parts.append((start, content))
        room = _ROOM if one.is_pointer else 0
        start += -(-content.numel() // _ALIGNED) * _ALIGNED + max(room, _ALIGNED)
    block = torch.zeros(start + _ROOM, dtype=torch.uint8)
    for at, content in parts:
        block[at : at + content.numel()] = content
    return Inputs(block, tuple(places))


def _content(
    one: Argument, launch: Launch, generator: torch.Generator, number: int
) -> torch.Tensor:
    """The bytes of an argument. `number` counts the buffers that are filled."""
    value = launch.values.get(one.name)
    if callable(value):
        return as_bytes(value(generator, launch.elements), one.type)
    if value is not None:
        return _given(one, value)
    if not one.is_const:
        size = launch.elements * max(one.element_size, 1)
        if one.type == "bool":  # no other byte is one
            return torch.arange(size).remainder(2).to(torch.uint8)
        return torch.full((size,), _UNWRITTEN, dtype=torch.uint8)
    if not one.is_pointer or one.space == "constant":
        raise NoValue(f"no value for '{one.name}' ({one.type})")
    type_ = type_of_elements(one)
    count = launch.elements * max(one.element_size // dtype_of(type_).itemsize, 1)
    return _filled(type_, count, launch.fill, generator, number)


def type_of_elements(one: Argument) -> str:
    """The type of a buffer's numbers: a complex number is a structure of two."""
    return one.fields[0].type if one.fields else one.type


def _given(one: Argument, value: Value) -> torch.Tensor:
    if isinstance(value, Mapping):
        return _structure(one, value)
    numbers = torch.tensor(value if isinstance(value, Sequence) else [value])
    return as_bytes(numbers, one.type)


def _structure(one: Argument, values: Mapping[str, object]) -> torch.Tensor:
    data = torch.zeros(one.element_size, dtype=torch.uint8)
    for part in one.fields:
        data[part.offset : part.offset + _size(part)] = _field(one, part, values)
    return data


def _size(part: Field) -> int:
    count = 1
    for length in part.shape:
        count *= length
    return count * dtype_of(part.type).itemsize


def _field(one: Argument, part: Field, values: Mapping[str, object]) -> torch.Tensor:
    if part.name not in values:
        raise NoValue(f"no value for '{one.name}.{part.name}' ({part.type})")
    found = as_bytes(torch.tensor(values[part.name]).reshape(-1), part.type)
    if found.numel() != _size(part):
        raise NoValue(f"'{one.name}.{part.name}' has {_size(part)} bytes, not {found.numel()}")
    return found


def _filled(
    type_: str, count: int, fill: str, generator: torch.Generator, number: int
) -> torch.Tensor:
    if type_ == "bool":
        return torch.randint(0, 2, (count,), generator=generator, dtype=torch.uint8)
    if dtype_of(type_).is_floating_point:
        make: Callable[..., torch.Tensor] = _floats
    else:
        make = _integers
    return as_bytes(make(count, fill, generator, number, dtype_of(type_)), type_)


def _combined(values: Sequence[float], count: int, number: int) -> torch.Tensor:
    """Every value with every one of the buffer before it, then all again."""
    at = torch.arange(count) // len(values) ** min(number, 2) % len(values)
    return torch.tensor(values)[at]


def _floats(
    count: int, fill: str, generator: torch.Generator, number: int, dtype: torch.dtype
) -> torch.Tensor:
    numbers = torch.randn(count, generator=generator)
    chance = torch.rand(count, generator=generator)
    if fill != SPECIAL:
        numbers = torch.where(chance < 0.05, _combined(_HARMLESS, count, 0), numbers)
        return torch.where(chance > 0.998, _combined(_SPECIAL, count, 0), numbers)
    numbers *= torch.randint(0, 12, (count,), generator=generator).float()
    is_special = (chance < 0.5) | (torch.arange(count) < len(_SPECIAL) ** 2)
    return torch.where(is_special, _combined(_SPECIAL, count, number), numbers)


def _integers(
    count: int, fill: str, generator: torch.Generator, number: int, dtype: torch.dtype
) -> torch.Tensor:
    """Half of them any bits, half small; edges of all types first where they are wanted."""
    raw = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator)
    numbers = raw.to(torch.uint8).view(dtype).to(torch.int64)
    small = torch.randint(-3, 40, (count,), generator=generator)
    numbers = torch.where(torch.rand(count, generator=generator) < 0.5, numbers, small)
    if fill != SPECIAL:
        return numbers
    at = torch.arange(count)
    edges = torch.tensor(_WHOLE)[at // len(_WHOLE) ** min(number, 2) % len(_WHOLE)]
    return torch.where(at < len(_WHOLE) ** 2, edges, numbers)


_DTYPES = {
    "char": torch.int8,
    "signed char": torch.int8,
    "uchar": torch.uint8,
    "bool": torch.uint8,
    "short": torch.int16,
    "ushort": torch.int16,
    "int": torch.int32,
    "uint": torch.int32,
    "long": torch.int64,
    "ulong": torch.int64,
    "half": torch.float16,
    "half2": torch.float16,
    "bfloat": torch.bfloat16,
}


def dtype_of(type_: str) -> torch.dtype:
    """The dtype whose bytes a type has; float for all that is made of floats."""
    return _DTYPES.get(type_, torch.float32)


def as_bytes(values: torch.Tensor, type_: str) -> torch.Tensor:
    if type_ == "bool":
        values = values != 0
    return values.to(dtype_of(type_)).contiguous().view(torch.uint8)
