"""Which loads or stores of a block touch one stretch of memory together.

A thread that reads a float4 reads four floats, 16 bytes from the next thread's. Each load alone is a
gather; all four are one stretch of memory and a permutation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anymetal.passes.lanes.facts import WIDTH
from anymetal.passes.lanes.rules import MEMORY_INTRINSICS
from anymetal.passes.lanes.values import Value
from anymetal.passes.operands import Parsed

WIDEST_BYTES = 1024
Peek = Callable[[Parsed], Value | None]


@dataclass(frozen=True)
class Stretch:
    """Neighbouring elements, and which lane of which access has each: (access, lane)."""

    start: int
    owners: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return len(self.owners)


def stretch_of(accesses: Sequence[tuple[int, ...]], size: int) -> Stretch | None:
    """The stretch that accesses (offsets a lane each) cover without gap and without overlap."""
    owner: dict[int, tuple[int, int]] = {}
    for number, offsets in enumerate(accesses):
        for lane, offset in enumerate(offsets):
            if offset in owner:
                return None
            owner[offset] = (number, lane)
    start = min(owner)
    if len(owner) * size > WIDEST_BYTES:
        return None
    places = range(start, start + len(owner) * size, size)
    if any(place not in owner for place in places):
        return None
    return Stretch(start, tuple(owner[place] for place in places))


def touches_memory(parsed: Parsed) -> bool:
    """Whether an instruction may change memory, or must not change places with accesses."""
    if parsed.opcode in ("store", "atomicrmw", "cmpxchg", "fence"):
        return True
    if parsed.opcode == "load":
        return parsed.is_atomic or parsed.is_volatile
    if parsed.opcode != "call":
        return False
    return not parsed.callee.startswith("llvm.") or parsed.callee.startswith(MEMORY_INTRINSICS)


def loads_together(
    block: Sequence[Parsed], first: int, address: Value, size: int, peek: Peek
) -> list[Parsed] | None:
    """The loads from `first` on that cover a stretch with it; each one's address is known now."""
    members, offsets = [block[first]], [address.facts.offsets]
    for parsed in block[first + 1 :]:
        if touches_memory(parsed):
            return None
        if parsed.opcode == "load" and parsed.kind == block[first].kind:
            _join(parsed, peek(parsed), address, members, offsets)
            if len(members) > 1 and stretch_of([o for o in offsets if o], size):
                return members
        if len(members) * size * WIDTH >= WIDEST_BYTES:
            return None
    return None


def stores_together(
    block: Sequence[Parsed], first: int, address: Value, size: int, peek: Peek
) -> list[Parsed] | None:
    """Likewise for stores; nothing between them looks at memory that may be theirs."""
    members, offsets = [block[first]], [address.facts.offsets]
    kind = block[first].operands[0].kind
    for parsed in block[first + 1 :]:
        if parsed.opcode == "store" and parsed.operands[0].kind == kind and not parsed.is_atomic:
            count = len(members)
            _join(parsed, peek(parsed), address, members, offsets)
            if len(members) == count:
                return None
            if stretch_of([o for o in offsets if o], size):
                return members
        elif touches_memory(parsed) or (parsed.opcode == "load" and not parsed.is_invariant):
            return None
        if len(members) * size * WIDTH >= WIDEST_BYTES:
            return None
    return None


def _join(
    parsed: Parsed,
    other: Value | None,
    address: Value,
    members: list[Parsed],
    offsets: list[tuple[int, ...] | None],
) -> None:
    if other is None or not other.facts.is_pattern:
        return
    if other.base == address.base and other.condition == address.condition:
        members.append(parsed)
        offsets.append(other.facts.offsets)
