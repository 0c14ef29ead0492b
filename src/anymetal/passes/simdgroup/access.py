"""One load or store of 32 lanes, and what its type and places say about it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anymetal.ir import Integer, Operand, Type, integer
from anymetal.passes.simdgroup.facts import WIDTH, Lanes
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.values import INVARIANT, Value

_NO_MARK: dict[str, str] = {}
WORD = 4  # bytes: processors gather and scatter no smaller elements


@dataclass
class Access:
    """One load or store of one scalar type by the lanes of a mask (None: all)."""

    type: Type
    address: Value
    align: int
    mask: Operand | None
    is_invariant: bool = False
    is_volatile: bool = False
    is_followed: bool = False  # other simdgroups, or other turns, take what lies behind it
    is_streamed: Operand | None = None  # whether a store goes past the caches
    next_row: Operand | None = None  # bytes to where the next threadgroup will load

    @property
    def metadata(self) -> dict[str, str]:
        return INVARIANT if self.is_invariant else _NO_MARK

    @property
    def common_align(self) -> int:
        """The alignment of all lanes' addresses, inactive lanes included."""
        offsets = self.address.facts.offsets
        assert offsets is not None
        return math.gcd(self.align, *(offset - offsets[0] for offset in offsets))


def common_align(accesses: list[Access]) -> int:
    return min(access.common_align for access in accesses)


def lane_weight(size: int) -> int:
    """About how many instructions LLVM makes of a gather or scatter."""
    return 4 if size >= WORD else 3 * WIDTH


def odd_parts(kind: Type) -> list[tuple[int, Integer]]:
    """Offsets and types of the usual integers that an unusual one is made of."""
    if not isinstance(kind, Integer) or kind.bits in (8, 16, 32, 64):
        return []
    if kind.bits % 8:
        raise NotVectorisable(f"{kind} in memory")
    parts, offset = [], 0
    for bits in (64, 32, 16, 8):
        while kind.bits - offset * 8 >= bits:
            parts.append((offset, integer(bits)))
            offset += bits // 8
    return parts


def is_contiguous(offsets: Lanes, size: int) -> bool:
    first = offsets[0]
    return all(offset == first + lane * size for lane, offset in enumerate(offsets))
