"""What a launch of a kernel consists of, and the table of those who describe one."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from anymetal.nouns import Scalar

Fill = Callable[[torch.Generator, int], torch.Tensor]
Number = int | float
Plain = Number | Sequence[Number]
Value = Plain | Mapping[str, Plain] | Fill
SPECIAL = "special"  # every second number is NaN, infinite, denormal, -0 or very large
SPARSE = "sparse"  # few of them: a sum of many numbers would be NaN with more


class Undefined(Exception):
    """A kernel whose result nothing says: MLX never launches it."""


@dataclass(frozen=True)
class Launch:
    """Values for arguments by their names, and the shape; buffers without a value are filled."""

    values: Mapping[str, Value]
    threads: tuple[int, ...]
    group: tuple[int, ...]
    fill: str = SPARSE
    elements: int = 1 << 12  # of every buffer that has no value of its own
    constants: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A kernel as a description sees it: its name, and its template with the arguments of that."""

    name: str
    function: str
    template: tuple[str, ...]

    def number(self, at: int) -> int:
        """A number among the template's arguments."""
        return int(self.template[at])

    def numbers(self, start: int, count: int) -> list[int]:
        return [self.number(at) for at in range(start, start + count)]

    def flag(self, at: int) -> bool:
        return self.template[at] in ("true", "1")

    def chance(self, what: str) -> bool:
        """One of two ways to launch it, by its name: the kernels of a family share them out."""
        return bool(zlib.crc32(f"{self.name} {what}".encode()) & 8)


Describe = Callable[[Case], list[Launch]]
_KNOWN: list[tuple[re.Pattern[str], Describe]] = []


def launches(pattern: str) -> Callable[[Describe], Describe]:
    """Registers a description for all functions whose names the pattern fits whole."""

    def add(describe: Describe) -> Describe:
        _KNOWN.append((re.compile(pattern), describe))
        return describe

    return add


def description_of(function: str) -> Describe | None:
    return next((make for pattern, make in _KNOWN if pattern.fullmatch(function)), None)


def groups_of(counts: Sequence[int], group: Sequence[int]) -> tuple[int, ...]:
    """The threads of so many threadgroups."""
    return tuple(count * size for count, size in zip(counts, group, strict=True))


def indices_below(limit: int) -> Fill:
    def fill(generator: torch.Generator, count: int) -> torch.Tensor:
        return torch.randint(0, limit, (count,), generator=generator)

    return fill


def ascending(generator: torch.Generator, count: int) -> torch.Tensor:
    """Sorted small numbers, many of them equal: of every type."""
    return torch.randint(0, 100, (count,), generator=generator).sort().values


def unit(generator: torch.Generator, count: int) -> torch.Tensor:
    """Numbers between 0 and 1."""
    return torch.rand(count, generator=generator)


def zeros(generator: torch.Generator, count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64)


def rarely(value: int, otherwise: int) -> Fill:
    """One number, and the other one in a few places."""

    def fill(generator: torch.Generator, count: int) -> torch.Tensor:
        chance = torch.rand(count, generator=generator)
        return torch.where(chance < 0.003, value, otherwise)

    return fill


def half_zero(generator: torch.Generator, count: int) -> torch.Tensor:
    """Masks: as many zeros as other numbers."""
    return torch.randint(0, 2, (count,), generator=generator)
