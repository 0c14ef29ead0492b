"""What is known of a value across the 32 lanes of a simdgroup.

A value is uniform (the same in every lane), a pattern (a uniform base plus an offset for each lane
that is known at compile time: `thread_index_in_simdgroup`, addresses of neighbouring elements), or
varying. Uniform values stay scalars in the vector code, patterns cost a scalar and a constant, and
only varying values are vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

from anymetal.ir import Integer, Pointer, Type

T = TypeVar("T")

WIDTH = 32
Lanes = tuple[int, ...]
ZERO: Lanes = (0,) * WIDTH
LANE_NUMBERS: Lanes = tuple(range(WIDTH))
Tag = tuple[str, int]
# The tag of memory of which every lane has its own copy, lanes side by side.
PRIVATE = "private"


class _Once(Generic[T]):
    """A property that is computed when it is first asked for; functools' takes a lock."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__

    def __get__(self, owner: Any, kind: type) -> T:
        value = owner.__dict__[self._name] = self._compute(owner)
        return value


@dataclass(frozen=True)
class Facts:
    """Lane i holds base + offsets[i]; offsets are None where nothing is known."""

    offsets: Lanes | None
    base: int | None = None  # the base, where it is a number known now
    divisor: int = 1  # the base is a multiple of this
    limit: int | None = None  # every lane's value is below this, and none wrapped around
    sure: bool = True  # False: holds where a condition computed at run time does
    tag: Tag | None = None  # which part of the machine this is, or points to

    @_Once
    def is_uniform(self) -> bool:
        if self.offsets is None or not self.sure:
            return False
        return self.offsets.count(self.offsets[0]) == WIDTH

    @property
    def is_pattern(self) -> bool:
        return self.offsets is not None and not self.is_uniform

    @property
    def is_varying(self) -> bool:
        return self.offsets is None

    @_Once
    def values(self) -> Lanes | None:
        """Every lane's value, where all are numbers known now."""
        if self.base is None or self.offsets is None:
            return None
        return tuple(self.base + offset for offset in self.offsets)


VARYING = Facts(None)
UNIFORM = Facts(ZERO)


@lru_cache(maxsize=4096)
def constant(value: int) -> Facts:
    limit = value + 1 if value >= 0 else None
    return Facts(ZERO, base=value, divisor=divisor_of(value), limit=limit)


def known(values: Sequence[int]) -> Facts:
    """Facts of a value of which every lane is known."""
    first = values[0]
    limit = max(values) + 1 if min(values) >= 0 else None
    return Facts(tuple(v - first for v in values), first, divisor_of(first), limit)


def meet(first: Facts, second: Facts) -> Facts:
    """What holds of a value that is either the one or the other, all lanes alike."""
    if first == second:
        return first
    if first.offsets is None or first.offsets != second.offsets:
        return VARYING
    if not (first.sure and second.sure):
        return VARYING
    return Facts(
        first.offsets,
        base=first.base if first.base == second.base else None,
        divisor=math.gcd(first.divisor, second.divisor),
        tag=first.tag if first.tag == second.tag else None,
    )


def normal(facts: Facts) -> Facts:
    """A uniform value's offset belongs to its base."""
    if facts.is_uniform and facts.offsets != ZERO:
        return replace(facts, offsets=ZERO)
    return facts


def divisor_of(value: int) -> int:
    """The largest number that divides it; a power of two beyond all widths for 0."""
    return abs(value) or 1 << 32


def wrap(value: int, width: int) -> int:
    """A number as a signed integer of `width` bits; of one bit, 0 or 1."""
    if width == 1:
        return value & 1
    half = 1 << (width - 1)
    return (value + half) % (1 << width) - half


def width_of(kind: Type) -> int | None:
    """Bits of an integer type; pointers count as 64."""
    if isinstance(kind, Pointer):
        return 64
    return kind.bits if isinstance(kind, Integer) else None


def free_bits(facts: Facts) -> int | None:
    """A power of two below which the offsets stay, and the base has no bits set; None without one.

    Base and offsets then have no bit in common, and bitwise operations treat them apart.
    """
    if facts.offsets is None or not facts.sure or min(facts.offsets) < 0:
        return None
    low = facts.divisor & -facts.divisor
    return low if max(facts.offsets) < low else None
